/** Which part of a long map is visible, and how sharp it is drawn, in words. */
import { visibleCells, type Window } from '../maths/raster'

/** `drawn` and `wanted` are queries and keys along a cell; Infinity for a thumbnail. */
interface Level {
  queries: number
  keys: number
  window: Window
  drawn: number
  wanted: number
}

export interface LevelWords {
  part: string
  /** Empty if every entry is drawn. */
  cell: string
  /** What is drawn until sharper entries are there. */
  coarse: boolean
}

export function levelWords({ queries, keys, window, drawn, wanted }: Level): LevelWords {
  const coarse = drawn > wanted
  const size =
    drawn === Number.POSITIVE_INFINITY
      ? 'a thumbnail'
      : drawn > 1
        ? `a cell is the largest of ${drawn} \u00d7 ${drawn} entries`
        : ''
  return { part: partOf(queries, keys, window), cell: size, coarse }
}

function partOf(queries: number, keys: number, { top, left, size }: Window): string {
  if (size >= 1) return queries === keys ? `all ${queries} tokens` : `all ${queries} queries and ${keys} keys`
  const range = (count: number, start: number) => {
    const [from, to] = visibleCells(count, start, size)
    return `${from} to ${to - 1}`
  }
  return `queries ${range(queries, top)}, keys ${range(keys, left)}`
}
