/** The pointer, shared by every figure: hovering or pinning in one highlights all. */
import { type Box, type Highlight, isNothing, litKeys, litQueries, NOTHING, type Spot } from '../lib/maths/highlight'
import { clipPins, writePins } from '../lib/text/pins'
import type { Selection } from './selection.svelte'

const toggled = (list: readonly number[], item: number) =>
  list.includes(item) ? list.filter((other) => other !== item) : [...list, item]

export class Pointer {
  #query = $state<number | null>(null)
  #key = $state<number | null>(null)
  /** What a click or a rectangle has pinned, which the address contains. */
  readonly pins: Highlight = $derived.by(() => clipPins(this.selection.pins, this.size()))

  /** `size`: numbers of queries and keys on screen. */
  constructor(
    private readonly selection: Pick<Selection, 'pins' | 'set'>,
    private readonly size: () => readonly [number, number],
  ) {}

  /** The query pointed at; null if there is none, or if the text on screen is too short to have it. */
  get query(): number | null {
    return this.#query !== null && this.#query < this.size()[0] ? this.#query : null
  }

  /** The key pointed at, likewise. */
  get key(): number | null {
    return this.#key !== null && this.#key < this.size()[1] ? this.#key : null
  }

  /** The head pointed at, in the grid or in a figure. */
  spot = $state.raw<Spot | null>(null)

  lit: Highlight = $derived({
    queries: this.query === null ? this.pins.queries : [...new Set([this.query, ...this.pins.queries])],
    keys: this.key === null ? this.pins.keys : [...new Set([this.key, ...this.pins.keys])],
    box: this.pins.box,
  })

  /** The tokens to read: the hovered one, otherwise all that are pinned. */
  queries: readonly number[] = $derived(this.query === null ? litQueries(this.pins) : [this.query])
  keys: readonly number[] = $derived(this.key === null ? litKeys(this.pins) : [this.key])

  hover(query: number | null, key: number | null): void {
    this.#query = query
    this.#key = key
  }

  leave(): void {
    this.hover(null, null)
  }

  /** Pin only this, or unpin it; with shift add it to what is pinned. */
  pin(query: number | null, key: number | null, add: boolean): void {
    const only = (list: readonly number[], item: number | null) =>
      item === null ? [] : [item].filter((i) => !list.includes(i) || list.length > 1)
    const more = (list: readonly number[], item: number | null) => (item === null ? list : toggled(list, item))
    const change = add ? more : only
    const box = add ? this.pins.box : null
    this.put({ queries: change(this.pins.queries, query), keys: change(this.pins.keys, key), box })
  }

  /** Pin a rectangle of the map and nothing else. */
  select(box: Box): void {
    this.put({ ...NOTHING, box })
  }

  /** Pin these tokens, on both sides, and nothing else. */
  hold(tokens: readonly number[]): void {
    this.put({ queries: tokens, keys: tokens, box: null })
  }

  get pinned(): boolean {
    return !isNothing(this.pins)
  }

  /** Pin exactly this. */
  put(pins: Highlight, history: 'step' | 'replace' = 'step'): void {
    this.selection.set({ pins: writePins(pins) }, history)
  }

  clear(history: 'step' | 'replace' = 'step'): void {
    this.put(NOTHING, history)
    this.leave()
  }
}
