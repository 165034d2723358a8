/** Everything that is chosen on the page. It lives in the address, so that reload, back and a sent link all work. */
import { type Head, headName, parseHead } from '../lib/analysis'
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
}
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
    return encodeFragment(this.#fields, INITIAL)
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

  openHead(head: Head, history: History = 'replace'): void {
    this.set({ head: headName(head) }, history)
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
