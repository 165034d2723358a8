/** What the hand points at, shared by every figure: hovering one lights all. */
export interface Lit {
  queries: readonly number[]
  keys: readonly number[]
}

const NONE: Lit = { queries: [], keys: [] }
const toggled = (list: readonly number[], item: number) =>
  list.includes(item) ? list.filter((other) => other !== item) : [...list, item]

export class Pointer {
  query = $state<number | null>(null)
  key = $state<number | null>(null)
  pins = $state.raw<Lit>(NONE)

  lit: Lit = $derived({
    queries: this.query === null ? this.pins.queries : [...new Set([this.query, ...this.pins.queries])],
    keys: this.key === null ? this.pins.keys : [...new Set([this.key, ...this.pins.keys])],
  })

  /** The row the words and the running text speak about: the hovered one, else the last pinned. */
  focusQuery: number | null = $derived(this.query ?? this.pins.queries.at(-1) ?? null)
  focusKey: number | null = $derived(this.key ?? this.pins.keys.at(-1) ?? null)

  hover(query: number | null, key: number | null): void {
    this.query = query
    this.key = key
  }

  leave(): void {
    this.hover(null, null)
  }

  /** A click pins only this, or lets go of it; with shift it adds to what is pinned. */
  pin(query: number | null, key: number | null, add: boolean): void {
    const only = (list: readonly number[], item: number | null) =>
      item === null ? [] : [item].filter((i) => !list.includes(i) || list.length > 1)
    const more = (list: readonly number[], item: number | null) => (item === null ? list : toggled(list, item))
    const change = add ? more : only
    this.pins = { queries: change(this.pins.queries, query), keys: change(this.pins.keys, key) }
  }

  get pinned(): boolean {
    return this.pins.queries.length > 0 || this.pins.keys.length > 0
  }

  clear(): void {
    this.pins = NONE
    this.leave()
  }
}
