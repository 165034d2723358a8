/** The part of a connection graph that a zoomed map shows: its tokens count from the first that is visible. */
import type { Connections, Visit } from './edges'
import type { Box, Highlight, Span } from './highlight'
import { visibleCells, type Window } from './raster'

export type Spans = readonly [queries: Span, keys: Span]

/** The visible queries and keys; null if all are. `together`: one running text for both. */
export function windowSpans(
  { top, left, size }: Window,
  [queries, keys]: readonly [number, number],
  together: boolean,
): Spans | null {
  if (size >= 1) return null
  const [rows, columns] = [visibleCells(queries, top, size), visibleCells(keys, left, size)]
  if (!together) return [rows, columns]
  const both: Span = [Math.min(rows[0], columns[0]), Math.max(rows[1], columns[1])]
  return [both, both]
}

/** The connections between the visible queries and keys. */
export function edgesWithin(edges: Connections, [[q0, q1], [k0, k1]]: Spans): Connections {
  const back =
    (visit: Visit): Visit =>
    (q, k) =>
      visit(q - q0, k - k0)
  const cut = ([from, to]: readonly [number, number], start: number, end: number): [number, number] => [
    from + start,
    Math.min(end, to + start),
  ]
  return {
    weight: (query, key) => edges.weight(query + q0, key + k0),
    within: (queries, keys, visit) => edges.within(cut(queries, q0, q1), cut(keys, k0, k1), back(visit)),
    leaving: (query, visit) => edges.within([query + q0, query + q0 + 1], [k0, k1], back(visit)),
    arriving: (key, visit) => edges.within([q0, q1], [key + k0, key + k0 + 1], back(visit)),
  }
}

/** The visible part of a highlight. */
export function litWithin({ queries, keys, box }: Highlight, [rows, columns]: Spans): Highlight {
  const inside = (tokens: readonly number[], [from, to]: Span) =>
    tokens.flatMap((token) => (token >= from && token < to ? [token - from] : []))
  const cut = (span: Span | null, [from, to]: Span): Span | null =>
    span && [Math.max(0, span[0] - from), Math.max(0, Math.min(to, span[1]) - from)]
  return {
    queries: inside(queries, rows),
    keys: inside(keys, columns),
    box: box && { queries: cut(box.queries, rows), keys: cut(box.keys, columns) },
  }
}

/** A rectangle drawn in the part, in places of the whole. */
export function boxBeyond({ queries, keys }: Box, [[q0], [k0]]: Spans): Box {
  const moved = (span: Span | null, by: number): Span | null => span && [span[0] + by, span[1] + by]
  return { queries: moved(queries, q0), keys: moved(keys, k0) }
}
