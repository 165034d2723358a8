/** Everything that is chosen on the page. It lives in the address, so that reload, back and a sent link all work. */
import { type Analysis, type Head, headName, parseHead } from '../lib/analysis'
import { decodeFragment, encodeFragment } from '../lib/fragment'
import { readParams } from '../lib/params'
import type { ScaleKind } from '../lib/scale'

export type View = 'map' | 'graph' | 'both'
export type Compare = 'off' | 'side' | 'difference'

const INITIAL = {
  model: '',
  text: '',
  pair: '',
  kind: '',
  mechanism: 'softmax',
  params: '',
  lens: 'weights',
  lensparams: '',
  other: '',
  compare: 'off',
  view: 'both',
  head: '',
  colour: 'map',
  scale: 'sqrt',
  rule: 'mass',
  mass: '0.7',
  k: '3',
  special: 'show',
  /** An analysis that somebody shared, and the key to it. */
  analysis: '',
  share: '',
}
/** What a shared analysis says itself; the rest is how to look at it. */
const SAID = { text: '', pair: '', model: '', kind: '', mechanism: 'softmax', params: '', lensparams: '' }
const MINE = { analysis: '', share: '' }
type Fields = typeof INITIAL
type History = 'push' | 'replace'

const oneOf = <T extends string>(value: string, allowed: readonly T[], fallback: T): T =>
  (allowed as readonly string[]).includes(value) ? (value as T) : fallback

const between = (text: string, low: number, high: number, fallback: number) => {
  const value = Number(text)
  return text !== '' && Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : fallback
}

/** Writing the address costs milliseconds and browsers complain when it is done at every frame. */
const ADDRESS_MS = 50

export class Selection {
  #fields = $state<Fields>({ ...INITIAL })
  #later: ReturnType<typeof setTimeout> | undefined

  constructor(fragment = '') {
    this.read(fragment)
  }

  read(fragment: string): void {
    clearTimeout(this.#later)
    this.#later = undefined
    this.#fields = decodeFragment(fragment, INITIAL) as Fields
  }

  get fragment(): string {
    const fields = this.shared ? { ...this.#fields, ...SAID } : this.#fields
    return encodeFragment(fields, INITIAL)
  }

  /** Steps worth going back to are pushed; adjustments replace the current entry, a moment later. */
  set(patch: Partial<Fields>, history: History = 'replace'): void {
    if (history === 'push') this.settle()
    Object.assign(this.#fields, patch)
    if (history === 'push') this.#write('pushState')
    else this.#later ??= setTimeout(() => this.settle(), ADDRESS_MS)
  }

  /** Writes what waits to be written. */
  settle(): void {
    if (this.#later === undefined) return
    clearTimeout(this.#later)
    this.#later = undefined
    this.#write('replaceState')
  }

  #write(how: 'pushState' | 'replaceState'): void {
    const address = `#${this.fragment}`
    if (address !== (location.hash || '#')) window.history[how](null, '', address)
  }

  /** What a shared analysis is of; the address then stays that of the analysis. */
  adopt(analysis: Analysis): void {
    const { text, textPair, model, kind, mechanism, params, maps } = analysis
    const written = (values: object) => (Object.keys(values).length === 0 ? '' : JSON.stringify(values))
    const lensparams = Object.entries(maps).flatMap(([lens, { params }]) => (written(params) ? [[lens, params]] : []))
    Object.assign(this.#fields, {
      text,
      pair: textPair,
      model,
      kind,
      mechanism,
      params: written(params),
      lensparams: written(Object.fromEntries(lensparams)),
    })
  }

  /** Whatever is asked for from now on is the reader's own. */
  leave(): void {
    if (this.shared) this.set(MINE)
  }

  /** The address with which somebody who has the key sees what is seen here. */
  linkTo(analysis: string, share: string): string {
    return `#${encodeFragment({ ...this.#fields, ...SAID, analysis, share }, INITIAL)}`
  }

  openHead(head: Head, history: History = 'replace'): void {
    this.set({ head: headName(head) }, history)
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
  get colour() {
    return this.#fields.colour
  }
  get compare(): Compare {
    return oneOf(this.#fields.compare, ['off', 'side', 'difference'], 'off')
  }
  get view(): View {
    return oneOf(this.#fields.view, ['map', 'graph', 'both'], 'both')
  }
  get scale(): ScaleKind {
    return oneOf(this.#fields.scale, ['linear', 'sqrt', 'log'], 'sqrt')
  }
  get rule() {
    return oneOf(this.#fields.rule, ['mass', 'top-k'], 'mass')
  }
  get mass() {
    return between(this.#fields.mass, 0.05, 1, 0.7)
  }
  get k() {
    return Math.round(between(this.#fields.k, 1, 64, 3))
  }
  get showSpecial() {
    return this.#fields.special !== 'hide'
  }
}
