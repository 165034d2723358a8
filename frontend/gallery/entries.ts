/** Entries of the gallery: every view in every state worth reviewing, over fixed data. */
interface Entry {
  name: string
  tokens: number
  /** The fragment of the address. */
  fragment?: string
  /** The duration of a run, to show progress. */
  delayMs?: number
  /** A key to press once the grid is shown. */
  press?: string
  /** The page of studies, with some or none. */
  studies?: 'some' | 'none'
  /** Effects of heads are computed. */
  effects?: boolean
  /** Batteries test heads. */
  batteries?: boolean
  /** On a server with users: who is signed in, empty for no one. */
  user?: string
}

/** A parsed file with invalid rows. */
const NEW = `study=new&draft=${encodeURIComponent(JSON.stringify({ dataset: 'c0ffee', limit: '200', against: 'mechanism', than: 'jump' }))}`

export const ENTRIES: readonly Entry[] = [
  { name: 'both-12', tokens: 12 },
  { name: 'both-34', tokens: 34 },
  { name: 'both-128', tokens: 128 },
  { name: 'both-512', tokens: 512 },
  { name: 'map-34', tokens: 34, fragment: 'view=map' },
  {
    name: 'map-sentences',
    tokens: 12,
    fragment: 'text=The+boats+sank.+Nobody+was+hurt!+Why%3F&view=map&unit=sentences&special=mark',
  },
  { name: 'map-zoomed-128', tokens: 128, fragment: 'view=map&zoom=0.2+0.3+0.1' },
  { name: 'graph-128', tokens: 128, fragment: 'view=graph' },
  { name: 'graph-top-k', tokens: 34, fragment: 'view=graph&rule=top-k&k=2&special=hide' },
  { name: 'effective-64', tokens: 64, fragment: 'lens=effective' },
  { name: 'side-64', tokens: 64, fragment: 'compare=side' },
  { name: 'difference-64', tokens: 64, fragment: 'compare=difference' },
  { name: 'identical-12', tokens: 12, fragment: 'lens=effective' },
  { name: 'colour-entropy', tokens: 64, fragment: 'colour=entropy' },
  { name: 'colour-null-share', tokens: 64, fragment: 'colour=null_share' },
  { name: 'colour-own-scale', tokens: 64, fragment: 'colour=own&lens=effective' },
  { name: 'scale-linear', tokens: 64, fragment: 'scale=linear' },
  { name: 'scale-log', tokens: 64, fragment: 'scale=log' },
  { name: 'layers-34', tokens: 34, fragment: 'lens=rollout' },
  { name: 'gaps-34', tokens: 34, fragment: 'lens=max-entropy' },
  { name: 'mechanism-34', tokens: 34, fragment: 'mechanism=jump&params=%7B%22order%22%3A2%7D' },
  { name: 'cross-34', tokens: 34, fragment: 'kind=cross&pair=The+water+rose+and+people+asked.' },
  { name: 'arcs-34', tokens: 34, fragment: 'graph=arcs' },
  { name: 'rows-12', tokens: 12, fragment: 'graph=rows&special=mark' },
  { name: 'by-value-34', tokens: 34, fragment: 'rule=value&value=0.04&range=row' },
  { name: 'image-50', tokens: 12, fragment: 'model=vit&image=hills' },
  { name: 'find-34', tokens: 34, fragment: 'find=vertical+and+layer+%3C+4+and+null_share+%3E+0.4' },
  { name: 'find-ranked-34', tokens: 34, fragment: 'find=vertical+and+layer+%3C+4&sort=rank' },
  { name: 'find-question-34', tokens: 34, fragment: 'find=heads+in+layer+1' },
  { name: 'find-error-34', tokens: 34, fragment: 'find=what%3F' },
  { name: 'find-none-34', tokens: 34, fragment: 'find=vertical+and+diagonal' },
  { name: 'patterns-34', tokens: 34, fragment: 'classes=show' },
  { name: 'several-34', tokens: 34, fragment: 'head=2.3&heads=2.3+4.5+1.0' },
  { name: 'map-small-34', tokens: 34, fragment: 'head=2.3&heads=2.3+4.5+1.0+0.2+5.1&merge=each' },
  { name: 'map-two-heads-34', tokens: 34, fragment: 'view=map&head=2.3&with=head&than=4.5&compare=side&like=cosine' },
  { name: 'scatter-34', tokens: 34, fragment: 'head=2.3&heads=2.3+4.5+1.0&scatter=show&y=null_share' },
  {
    name: 'notes-34',
    tokens: 34,
    fragment:
      'kind=self&head=2.3&notes=%7B%22minilm%2Fself%22%3A%7B%222.3%22%3A%22Previous+token%22%2C%224.5%22%3A%22%22%7D%7D',
  },
  { name: 'sheet-of-sessions', tokens: 12, press: 'o' },
  {
    name: 'compared-mechanisms-34',
    tokens: 34,
    fragment: 'with=mechanism&than=jump&compare=side&colour=compared:cosine',
  },
  {
    name: 'compared-texts-12',
    tokens: 12,
    fragment: 'with=text&than=The+boats+lay+by+the+wide+green+bank+while+the+bank&compare=difference',
  },
  {
    name: 'compared-unlike-12',
    tokens: 12,
    fragment: 'with=text&than=People+asked+where+the+water+went+or+when+it+would+come+back+to+us&compare=difference',
  },
  { name: 'statistics-34', tokens: 34, fragment: 'figures=entropy,patterns' },
  { name: 'token-ids-12', tokens: 12, fragment: 'ids=101+2023+2003+102' },
  {
    name: 'writing-12',
    tokens: 12,
    fragment: 'model=gpt2&generate=%7B%22max_new_tokens%22%3A5%2C%22do_sample%22%3Atrue%7D',
  },
  {
    name: 'effects-12',
    tokens: 12,
    effects: true,
    fragment: 'model=gpt2&target=%5B0%2C1%5D&colour=effect.contribution&sort=effect&off=2.9+4.5',
  },
  {
    name: 'effect-map-12',
    tokens: 12,
    effects: true,
    fragment: 'model=gpt2&target=%5B0%2C1%5D&lens=effect.gradient-attention&head=2.9',
  },
  {
    name: 'head-tests-12',
    tokens: 12,
    batteries: true,
    fragment: 'model=gpt2&head=2.9&tests=on',
  },
  { name: 'sheet-of-keys', tokens: 12, press: '?' },
  { name: 'sheet-of-history', tokens: 12, press: 'h' },
  { name: 'sheet-of-examples', tokens: 12, press: 'e' },
  { name: 'running', tokens: 34, delayMs: 60_000 },
  { name: 'signed-in', tokens: 34, user: 'ada' },
  { name: 'sign-in', tokens: 12, user: '' },
  { name: 'studies-none', tokens: 0, studies: 'none' },
  { name: 'studies-new', tokens: 0, studies: 'some', fragment: NEW },
  { name: 'studies-running', tokens: 0, studies: 'some', fragment: 'study=running' },
  { name: 'studies-failed', tokens: 0, studies: 'some', fragment: 'study=failed' },
  { name: 'studies-figures', tokens: 0, studies: 'some', fragment: 'study=one' },
  { name: 'studies-paired', tokens: 0, studies: 'some', fragment: 'study=one&other=two&figures=entropy' },
  { name: 'studies-heads', tokens: 0, studies: 'some', fragment: 'study=one&show=heads&find=layer+%3C+4&head=2.9' },
  {
    name: 'studies-heads-paired',
    tokens: 0,
    studies: 'some',
    fragment: 'study=one&other=two&show=heads&measure=null_share',
  },
  { name: 'studies-tables', tokens: 0, studies: 'some', fragment: 'study=one&show=tables&table=heads' },
  { name: 'studies-data', tokens: 0, studies: 'some', fragment: 'study=one&show=data' },
]
