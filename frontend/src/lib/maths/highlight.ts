/** Highlights on a map and on everything linked with it: single tokens, and a rectangle. */
export type Span = readonly [from: number, to: number]

/** Start and end (exclusive) along each side; null is the whole side. */
export interface Box {
  queries: Span | null
  keys: Span | null
}

export interface Highlight {
  queries: readonly number[]
  keys: readonly number[]
  box: Box | null
}

/** A head, or with null all heads of a layer: where the pointer is among heads, or the subject of a point in a figure. */
export interface Spot {
  layer: number
  head: number | null
  /** Of a study with two, if the point is about one of them. */
  variant?: number
}

/** Whether one equals or contains the other. */
export const overlaps = (a: Spot, b: Spot) =>
  a.layer === b.layer && (a.head === null || b.head === null || a.head === b.head)

export const NOTHING: Highlight = { queries: [], keys: [], box: null }

export const isNothing = ({ queries, keys, box }: Highlight) => queries.length + keys.length === 0 && box === null

/** The span between both ends of a drag, in either direction. */
export const spanOf = (a: number, b: number): Span => [Math.min(a, b), Math.max(a, b) + 1]

export const places = (span: Span | null): number[] =>
  span === null ? [] : Array.from({ length: span[1] - span[0] }, (_, i) => span[0] + i)

/** Highlighted tokens of one side without duplicates, single ones first. A rectangle that spans the whole side adds none. */
export const litQueries = ({ queries, box }: Highlight): number[] => [
  ...new Set([...queries, ...places(box?.queries ?? null)]),
]
export const litKeys = ({ keys, box }: Highlight): number[] => [...new Set([...keys, ...places(box?.keys ?? null)])]
