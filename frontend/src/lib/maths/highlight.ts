/** What is lit on a map and on everything linked with it: single tokens, and a rectangle. */
export type Span = readonly [from: number, to: number]

/** From and to (exclusive) along each side; null takes the whole side. */
export interface Box {
  queries: Span | null
  keys: Span | null
}

export interface Highlight {
  queries: readonly number[]
  keys: readonly number[]
  box: Box | null
}

/** A head, or with null all heads of a layer: what a point of a figure is about, or what the hand is at among the heads. */
export interface Spot {
  layer: number
  head: number | null
}

/** Whether one of them is the other, or a part of it. */
export const overlaps = (a: Spot, b: Spot) =>
  a.layer === b.layer && (a.head === null || b.head === null || a.head === b.head)

export const NOTHING: Highlight = { queries: [], keys: [], box: null }

export const isNothing = ({ queries, keys, box }: Highlight) => queries.length + keys.length === 0 && box === null

/** The two ends of a movement, whichever way it went. */
export const spanOf = (a: number, b: number): Span => [Math.min(a, b), Math.max(a, b) + 1]

export const places = (span: Span | null): number[] =>
  span === null ? [] : Array.from({ length: span[1] - span[0] }, (_, i) => span[0] + i)

/** All that is lit on one side, each once: single tokens first. A side that the rectangle takes whole counts for nothing. */
export const litQueries = ({ queries, box }: Highlight): number[] => [
  ...new Set([...queries, ...places(box?.queries ?? null)]),
]
export const litKeys = ({ keys, box }: Highlight): number[] => [...new Set([...keys, ...places(box?.keys ?? null)])]
