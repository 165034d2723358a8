/** Texts to begin with. Each says what to look for. */
import { type Head, type Model, parseHead } from '../data/analysis'
import type { Sample } from '../data/source'
import { nearestHead } from '../data/subset'

export interface Example {
  /** As in the address. */
  name: string
  title: string
  look: string
  text: string
  pair: string
  head: string
  /** An image instead of the texts, by its name among those of the page. */
  sample?: string
  /** A long text that begins with `text`, by its name among those of the page. */
  document?: string
  /** What else there is to know. */
  why?: string
  /** Fields of the address that show it best. */
  show?: { compare?: string; lens?: string; other?: string; view?: string } & Partial<Twins>
}

/** Two models side by side, each as it was trained. */
interface Twins {
  model: string
  kind: string
  mechanism: string
  params: string
  with: string
  than: string
  thanparams: string
  twin: string
}

export const EXAMPLES: readonly [Example, ...Example[]] = [
  {
    name: 'banks',
    title: 'Two banks',
    look: 'does \u201cbank\u201d attend to \u201cbank\u201d?',
    text: 'The boats lay by the river bank all winter, while the bank in town kept the money that the fishermen had earned. When spring came, the river rose over the bank, and the bank sent its men to count what was left of the boats.',
    pair: '',
    head: '2.9',
  },
  {
    name: 'pronoun',
    title: 'A pronoun',
    look: 'is \u201cit\u201d the trophy or the suitcase?',
    text: 'The trophy did not fit into the suitcase because it was too big.',
    pair: '',
    head: '3.1',
  },
  {
    name: 'pair',
    title: 'Two segments',
    look: 'which heads link the two?',
    text: 'A man is playing a guitar on the stage.',
    pair: 'Somebody is making music for a crowd.',
    head: '5.8',
  },
  {
    name: 'clock',
    title: 'A longer text',
    look: 'how much is effective?',
    text: 'When the old clock on the town hall stopped, nobody noticed at first. The baker opened his shop when the bread was done, the children came to school when they were hungry for company, and the mayor held his speeches whenever he saw a crowd. Only the clockmaker, who had wound the clock every morning for forty years, walked past it with a small smile.',
    pair: '',
    head: '2.5',
  },
]

/** The open head of an analysis: the chosen one, or that of the first example. */
export const openHead = (analysis: Parameters<typeof nearestHead>[0], chosen: Head | undefined): Head =>
  nearestHead(analysis, chosen ?? parseHead(EXAMPLES[0].head) ?? { layer: 0, head: 0 })

/** A sentence twice, for a language model. */
const TWICE =
  'The lighthouse keeper painted seven blue boats before breakfast. The lighthouse keeper painted seven blue boats before breakfast.'

/** Examples of other models, which not every installation has. */
const OF_OTHERS: readonly Example[] = [
  {
    name: 'twins',
    title: 'Two mechanisms',
    look: 'do twins agree?',
    text: 'The trophy did not fit into the suitcase because it was too big.',
    pair: '',
    head: '3.1',
    show: {
      model: 'twin-bert-softmax',
      with: 'model',
      than: 'twin-bert-hopfield',
      ...{ kind: '', mechanism: '', params: '', thanparams: '', twin: '' },
      ...{ compare: 'side', lens: 'weights' },
    },
  },
  {
    name: 'reaction',
    title: 'A chemical reaction',
    look: 'where does the N of the product come from?',
    text: 'CC(=O)Cl.NCC>>CC(=O)NCC',
    pair: '',
    head: '10.5',
    show: { model: 'rxnmapper' },
  },
  {
    name: 'induction',
    title: 'The same again',
    look: 'what came after this word the first time?',
    text: TWICE,
    pair: '',
    head: '17.4',
    show: { model: 'smollm2' },
  },
  {
    name: 'previous',
    title: 'One token back',
    look: 'which head only looks at the token before?',
    text: TWICE,
    pair: '',
    head: '16.0',
    show: { model: 'smollm2' },
  },
  {
    name: 'first',
    title: 'The first token',
    look: 'where does a head look that has nothing to say?',
    text: TWICE,
    pair: '',
    head: '18.8',
    show: { model: 'smollm2' },
  },
  {
    name: 'chapter',
    title: 'A chapter of a book',
    look: 'find \u201cSammyadd\u201d among the tokens: where does the second one look?',
    why: 'At what followed the first, 3,942 tokens before; head 18.3 looks at the first token of all. Computing it takes minutes. From Five Children and It by Edith Nesbit, 1902, public domain.',
    text: 'Beautiful as the Day\n',
    pair: '',
    head: '17.3',
    document: 'chapter',
    show: { model: 'smollm2', view: 'map' },
  },
  {
    name: 'image',
    title: 'An image',
    look: 'which part of the cat gets most weight?',
    text: '',
    pair: '',
    head: '3.0',
    sample: 'cat',
    show: { model: 'twin-vit-softmax' },
  },
]

/** What an example does not choose itself is as at the beginning, so that it shows the same whatever was chosen before. */
const PLAIN = {
  model: '',
  kind: '',
  mechanism: '',
  params: '',
  lens: 'weights',
  lensparams: '',
  compare: 'off',
  with: 'lens',
  other: '',
  than: '',
  thanparams: '',
  twin: '',
  heads: '',
  pins: '',
  zoom: '',
  most: '',
  chat: '',
  ids: '',
  targets: '',
  generate: '',
  colour: 'map',
  special: 'show',
}

/** The fields of the address that show an example. */
export function chosenBy({ name, text, pair, head, sample, show }: Example): Record<string, string> {
  // The text is kept for the next model that reads one.
  const input = sample ? { image: '', view: '', graph: '' } : { text, pair }
  return { ...PLAIN, tour: name, ...input, head, ...show }
}

/** The examples whose models, images and long texts are available. */
export function examplesWith(models: readonly Model[], samples: readonly Sample[]): readonly Example[] {
  const here = (name: string | undefined) =>
    name === undefined || models.some((model) => model.name === name && model.available)
  const drawn = (name: string | undefined) => name === undefined || samples.some((sample) => sample.name === name)
  return [
    ...EXAMPLES,
    ...OF_OTHERS.filter(
      ({ show, sample, document }) => here(show?.model) && here(show?.than) && drawn(sample) && drawn(document),
    ),
  ]
}
