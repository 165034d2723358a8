/** Everything that is chosen on the page. It lives in the address, so that reload, back and a sent link all work. */
import { type Analysis, type Head, headName, type Method, parseHead, parseHeads } from '../lib/data/analysis'
import { sameMethod } from '../lib/data/mechanism'
import { readParams } from '../lib/data/params'
import type { GraphKind } from '../lib/maths/graph-geometry'
import { type Merge, MOST_HEADS, sameHead, toggleHead } from '../lib/maths/merge'
import type { Range, ScaleKind } from '../lib/maths/scale'
import { decodeFragment, encodeFragment, writeFragment } from '../lib/net/fragment'
import { writeIds } from '../lib/text/ids'

export type View = 'map' | 'graph' | 'both'
/** Of the tokens of the graph; over the image where they are patches of one. */
export type Layout = GraphKind | 'image'
export type Special = 'show' | 'mark' | 'hide'
export type With = 'lens' | 'mechanism' | 'model' | 'text'
export type Compare = 'off' | 'side' | 'difference'

const INITIAL = {
  model: '',
  text: '',
  pair: '',
  /** Token ids in place of the texts, for the (encoder's) text and the decoder's. */
  ids: '',
  targets: '',
  /** An image, by the name under which the server keeps it. */
  image: '',
  /** How the model writes on, as JSON; empty where it does not. */
  generate: '',
  /** How many tokens of the input are read; empty for all. */
  most: '',
  kind: '',
  /** Empty for the one that the model was trained with. */
  mechanism: '',
  params: '',
  lens: 'weights',
  lensparams: '',
  other: '',
  compare: 'off',
  /** What the analysis is compared with: another of its lenses, or one with another mechanism, model or text. */
  with: 'lens',
  than: '',
  thanparams: '',
  /** The head of the other model; empty for the same one. */
  twin: '',
  view: 'both',
  head: '',
  colour: 'map',
  /** Which heads: a query, or a sentence. */
  find: '',
  /** How heads are arranged: by layer, by rank, or by a measure with `asc` where the smallest come first. */
  sort: 'layer',
  /** Patterns of heads are marked. */
  classes: '',
  /** Several heads that are read as one, and how. */
  heads: '',
  merge: 'mean',
  scale: 'sqrt',
  rule: 'mass',
  mass: '0.7',
  k: '3',
  value: '0.1',
  special: 'show',
  /** Layout of the graph; empty for what suits the text. */
  graph: '',
  unit: 'pieces',
  range: 'head',
  /** Figures that are open, and whether those that can be are drawn for the heads of one layer. */
  figures: '',
  spread: 'layer',
  /** An analysis that somebody shared, and the key to it. */
  analysis: '',
  share: '',
}
/** What a shared analysis says itself; the rest is how to look at it. */
const SAID = {
  text: '',
  pair: '',
  ids: '',
  targets: '',
  image: '',
  generate: '',
  most: '',
  model: '',
  kind: '',
  mechanism: '',
  params: '',
  lensparams: '',
}
/** A key opens one analysis, and what it is compared with is another. */
const ALONE = { with: 'lens', than: '', thanparams: '', twin: '' }
/** What is cut where there is too much of it: another one is read as a whole again. */
const INPUT = ['text', 'pair', 'ids', 'targets'] as const
const MINE = { analysis: '', share: '' }
type Fields = typeof INITIAL
/** A step is a new entry, unless the last one changed the same things a moment ago. */
type History = 'push' | 'replace' | 'step'

/** What an analysis is of, as it stands in the address; by the ids of its tokens where it was given by number. `own` is what its model was trained with. */
function saidBy(analysis: Analysis, own: Method): typeof SAID {
  const {
    text,
    textPair,
    image,
    generate,
    generated,
    maxTokens,
    model,
    kind,
    mechanism,
    params,
    maps,
    tokens,
    keyTokens,
  } = analysis
  const written = (values: object) => (Object.keys(values).length === 0 ? '' : JSON.stringify(values))
  const lensparams = Object.entries(maps).flatMap(([lens, { params }]) => (written(params) ? [[lens, params]] : []))
  const given = keyTokens === tokens ? tokens.slice(0, tokens.length - generated) : keyTokens
  const trained = sameMethod(own, { name: mechanism, params })
  const numbers = kind !== 'decoder' && text === '' && image === ''
  return {
    text,
    pair: textPair,
    ids: numbers ? writeIds(given.map(({ id }) => id)) : '',
    targets: numbers && keyTokens !== tokens && !generate ? writeIds(tokens.map(({ id }) => id)) : '',
    image,
    generate: generate ? written(generate) : '',
    most: maxTokens ? String(maxTokens) : '',
    model,
    kind,
    mechanism: trained ? '' : mechanism,
    params: trained ? '' : written(params),
    lensparams: written(Object.fromEntries(lensparams)),
  }
}

const oneOf = <T extends string>(value: string, allowed: readonly T[], fallback: T): T =>
  (allowed as readonly string[]).includes(value) ? (value as T) : fallback

const between = (text: string, low: number, high: number, fallback: number) => {
  const value = Number(text)
  return text !== '' && Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : fallback
}

/** What changes again within this time is one step: a slider that is drawn, a walk through the heads. */
const ONE_STEP_MS = 1000
/** Number of this entry of the browser's history, from where the visit began. */
const stepNow = (): number => (globalThis.history?.state as { step?: number } | null)?.step ?? 0

/** Writing the address costs milliseconds and browsers complain when it is done at every frame. */
const ADDRESS_MS = 50

export class Selection {
  #fields = $state<Fields>({ ...INITIAL })
  #later: ReturnType<typeof setTimeout> | undefined
  #last = { what: '', when: 0 }
  /** How many entries of this visit lie ahead of the first. */
  #furthest = stepNow()

  constructor(fragment = '') {
    this.read(fragment)
  }

  read(fragment: string): void {
    clearTimeout(this.#later)
    this.#later = undefined
    this.#last.what = ''
    this.#fields = decodeFragment(fragment, INITIAL) as Fields
  }

  get fragment(): string {
    const fields = this.shared ? { ...this.#fields, ...SAID } : this.#fields
    return encodeFragment(fields, INITIAL)
  }

  /** What a person chose is a step that can be undone; what the page fills in itself replaces the current entry, a moment later. */
  set(patch: Partial<Fields>, history: History = 'step'): void {
    const push = history === 'push' || (history === 'step' && this.#begins(patch))
    if (push) this.settle()
    const other = INPUT.some((name) => name in patch && patch[name] !== this.#fields[name])
    Object.assign(this.#fields, other ? { most: '' } : {}, patch)
    if (push) this.#write('pushState')
    else this.#later ??= setTimeout(() => this.settle(), ADDRESS_MS)
  }

  #begins(patch: Partial<Fields>): boolean {
    const [what, when] = [Object.keys(patch).sort().join(), performance.now()]
    const same = what === this.#last.what && when - this.#last.when < ONE_STEP_MS
    this.#last = { what, when }
    return !same
  }

  /** The choice before; nothing where this visit began. */
  undo(): void {
    this.settle()
    if (stepNow() > 0) window.history.back()
  }

  /** The choice that was undone. */
  redo(): void {
    this.settle()
    if (stepNow() < this.#furthest) window.history.forward()
  }

  /** Writes what waits to be written. */
  settle(): void {
    if (this.#later === undefined) return
    clearTimeout(this.#later)
    this.#later = undefined
    this.#write('replaceState')
  }

  #write(how: 'pushState' | 'replaceState'): void {
    if (`#${this.fragment}` === (location.hash || '#')) return
    const step = stepNow() + (how === 'pushState' ? 1 : 0)
    if (how === 'pushState') this.#furthest = step
    writeFragment(how, { step }, this.fragment)
  }

  /** What a shared analysis is of; the address then stays that of the analysis. */
  adopt(analysis: Analysis, own: Method): void {
    Object.assign(this.#fields, saidBy(analysis, own))
  }

  /** An analysis of before is chosen again. */
  recall(analysis: Analysis, own: Method, lens: string): void {
    this.set({ ...MINE, ...saidBy(analysis, own), lens }, 'push')
  }

  /** Whatever is asked for from now on is the reader's own. */
  leave(): void {
    if (this.shared) this.set(MINE, 'replace')
  }

  /** The address with which somebody who has the key sees what is seen here. */
  linkTo(analysis: string, share: string): string {
    return `#${encodeFragment({ ...this.#fields, ...SAID, ...ALONE, analysis, share }, INITIAL)}`
  }

  openHead(head: Head, history: History = 'step'): void {
    this.set({ head: headName(head), heads: '' }, history)
  }

  /** One head more, or one less, beside those that are open. */
  addHead(head: Head, open: Head, how: 'toggle' | 'add'): void {
    const now = this.several.length > 0 ? this.several : [open]
    const next = how === 'add' && now.some((other) => sameHead(other, head)) ? now : toggleHead(now, head)
    const last = next.some((other) => sameHead(other, head)) ? head : (next.at(-1) ?? open)
    this.set({ head: headName(last), heads: next.length > 1 ? next.map(headName).join(' ') : '' }, 'step')
  }

  /** The analysis that somebody shared, if it is that what is to be seen. */
  get shared() {
    return this.#fields.share && this.#fields.analysis
  }
  get share() {
    return this.#fields.share
  }
  get model() {
    return this.#fields.model
  }
  get text() {
    return this.#fields.text
  }
  get pair() {
    return this.#fields.pair
  }
  get ids() {
    return this.#fields.ids
  }
  get targets() {
    return this.#fields.targets
  }
  get image() {
    return this.#fields.image
  }
  get generate() {
    return this.#fields.generate
  }
  /** How many tokens of the input are read; 0 for all. */
  get most() {
    return Math.round(between(this.#fields.most, 0, 1_000_000, 0))
  }
  get mechanism() {
    return this.#fields.mechanism
  }
  get kind() {
    return this.#fields.kind
  }
  /** Parameters of the mechanism, as JSON; empty for the defaults. */
  get params() {
    return this.#fields.params
  }
  /** Parameters of a lens, likewise: the address holds one JSON object of those that have any. */
  paramsOf(lens: string): string {
    const found = readParams(this.#fields.lensparams)[lens]
    return found ? JSON.stringify(found) : ''
  }
  /** What stands in the address for all lenses once this one's parameters are `text`. */
  withParams(lens: string, text: string): string {
    const { [lens]: _, ...rest } = readParams(this.#fields.lensparams)
    const all = text === '' ? rest : { ...rest, [lens]: readParams(text) }
    return Object.keys(all).length === 0 ? '' : JSON.stringify(all)
  }
  get lens() {
    return this.#fields.lens
  }
  get other() {
    return this.#fields.other
  }
  get head(): Head | undefined {
    return parseHead(this.#fields.head)
  }
  get find() {
    return this.#fields.find
  }
  get sort() {
    return this.#fields.sort
  }
  /** Names of the figures that are open, with commas. */
  get figures() {
    return this.#fields.figures
  }
  get spread() {
    return oneOf(this.#fields.spread, ['layer', 'head'], 'layer')
  }
  get classes() {
    return this.#fields.classes !== ''
  }
  get several(): Head[] {
    const heads = parseHeads(this.#fields.heads).slice(0, MOST_HEADS)
    return heads.length > 1 ? heads : []
  }
  get merge(): Merge {
    return oneOf(this.#fields.merge, ['mean', 'max'], 'mean')
  }
  get colour() {
    return this.#fields.colour
  }
  get compare(): Compare {
    return oneOf(this.#fields.compare, ['off', 'side', 'difference'], 'off')
  }
  get with(): With {
    return oneOf(this.#fields.with, ['lens', 'mechanism', 'model', 'text'], 'lens')
  }
  /** The other mechanism or model by its name, or the other text. */
  get than() {
    return this.#fields.than
  }
  /** Parameters of the other mechanism, as JSON. */
  get thanparams() {
    return this.#fields.thanparams
  }
  get twin(): Head | undefined {
    return parseHead(this.#fields.twin)
  }
  get view(): View {
    return oneOf(this.#fields.view, ['map', 'graph', 'both'], 'both')
  }
  get scale(): ScaleKind {
    return oneOf(this.#fields.scale, ['linear', 'sqrt', 'log'], 'sqrt')
  }
  get rule() {
    return oneOf(this.#fields.rule, ['mass', 'top-k', 'value'], 'mass')
  }
  get mass() {
    return between(this.#fields.mass, 0.05, 1, 0.7)
  }
  get k() {
    return Math.round(between(this.#fields.k, 1, 64, 3))
  }
  /** Least magnitude of a connection, where the rule is about values. */
  get value() {
    return between(this.#fields.value, 0, 1, 0.1)
  }
  /** What becomes of the model's own tokens, and of sinks, in the graph. */
  get special(): Special {
    return oneOf(this.#fields.special, ['show', 'mark', 'hide'], 'show')
  }
  get graph(): Layout | '' {
    return oneOf(this.#fields.graph, ['', 'columns', 'rows', 'arcs', 'image'], '')
  }
  /** The pieces of a word are read together. */
  get words() {
    return this.#fields.unit === 'words'
  }
  /** What the strongest colour of a map stands for: its head's largest value, each row's, or that of all heads. */
  get range(): Range {
    return oneOf(this.#fields.range, ['head', 'row', 'all'], 'head')
  }
}
