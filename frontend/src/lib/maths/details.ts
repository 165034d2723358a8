/** Parts of a map that is too long to be read as a whole: on screen are an overview of it and the parts that were zoomed into. */
import type { Span } from './highlight'
import { columnSum, groupValue, type Matrix, rowMean, thumbnailValue } from './matrix'
import { type View, visibleCells, visibleMax, type Window } from './raster'

/** Which part: an entry of its map is the largest of a cell of `pool` queries and `pool` keys. */
export interface Part {
  pool: number
  queries: Span
  keys: Span
}

export interface Detail extends Part {
  map: Matrix
}

/** Longer maps are read in parts: an overview with at most so many entries along a side, and what is zoomed into. */
const LONGEST = 2048
const OVERVIEW = 1024
/** The most entries of a part along a side of a window. */
export const SHARPEST = 768
/** Parts begin and end at multiples of this many entries, so that a small move needs no other part. */
const STEP = 128

/** The pool of the overview of a map; 1 if it is read as a whole. */
export const overviewPool = (queries: number, keys: number): number =>
  Math.max(queries, keys) > LONGEST ? Math.ceil(Math.max(queries, keys) / OVERVIEW) : 1

/** Whether a map of this shape [L, H, Q, K] is read in parts. */
export const isLong = (shape: readonly number[] | undefined): boolean =>
  shape !== undefined && overviewPool(shape[2], shape[3]) > 1

/** Whether what a window shows of a map of this shape [L, H, Q, K] arrives much sooner than all of it. */
export const isLarge = (shape: readonly number[] | undefined): boolean =>
  shape !== undefined && Math.max(shape[2], shape[3]) > OVERVIEW

/** The part to read for a window of a map of which there is an overview, or something else as coarse; undefined if that is as sharp. */
export function partFor(
  window: Window,
  queries: number,
  keys: number,
  coarse = overviewPool(queries, keys),
): Part | undefined {
  const spans = [visibleCells(queries, window.top, window.size), visibleCells(keys, window.left, window.size)]
  const visible = Math.max(...spans.map(([from, to]) => to - from))
  const pool = 2 ** Math.max(0, Math.ceil(Math.log2(visible / SHARPEST)))
  if (pool >= coarse) return undefined
  const step = STEP * pool
  const snapped = ([from, to]: Span, count: number): Span => [
    Math.floor(from / step) * step,
    Math.min(count, Math.ceil(to / step) * step),
  ]
  return { pool, queries: snapped(spans[0], queries), keys: snapped(spans[1], keys) }
}

export const partName = ({ pool, queries, keys }: Part): string => [pool, ...queries, ...keys].join(' ')

/** The pixels of a window that a part of a map covers, and the cells of the part that are drawn there. */
export interface Placed {
  x: Span
  y: Span
  view: View
}

/** `count` tokens along an axis, of which the window begins at `start` and shows `size`, in fractions. */
function placeAlong([first, last]: Span, pool: number, count: number, start: number, size: number, side: number) {
  const pixel = (token: number) => Math.min(side, Math.max(0, ((token / count - start) / size) * side))
  const [from, to] = [Math.ceil(pixel(first) - 1e-6), Math.floor(pixel(last) + 1e-6)]
  const cells = Math.ceil((last - first) / pool)
  const fraction = (tokens: number) => tokens / pool / cells
  return {
    pixels: [from, to] as Span,
    start: fraction((start + (from / side) * size) * count - first),
    size: fraction(((to - from) / side) * size * count),
  }
}

/** An overview as a part that is the whole of its map; undefined for other maps. */
const wholePart = ({ pool }: Matrix, queries: number, keys: number): Part | undefined =>
  pool ? { pool, queries: [0, queries], keys: [0, keys] } : undefined

/** The cells of a map that a window shows. The last ones of an overview have fewer tokens than the others. */
export function drawnView(map: Matrix, size: readonly [number, number], window: Window, side: number): Window | View {
  const part = wholePart(map, ...size)
  return (part && placeDetail(part, size, window, side)?.view) ?? window
}

/** Place a part in a window; undefined if nothing of it is visible. */
export function placeDetail(
  { pool, queries, keys }: Part,
  [rows, columns]: readonly [number, number],
  { top, left, size }: Window,
  side: number,
): Placed | undefined {
  const y = placeAlong(queries, pool, rows, top, size, side)
  const x = placeAlong(keys, pool, columns, left, size, side)
  if ([x, y].some(({ pixels: [from, to] }) => to <= from)) return undefined
  return { x: x.pixels, y: y.pixels, view: { top: y.start, left: x.start, height: y.size, width: x.size } }
}

export interface Cell {
  value: number
  exact: boolean
}

/** Whether what a window shows is read entry by entry. */
export const isSharp = (window: Window, queries: number, keys: number): boolean =>
  partFor(window, queries, keys)?.pool === 1

/** The entries of some queries and keys; undefined unless one part has all of them. */
export function entriesOf(details: readonly Detail[], [[q0, q1], [k0, k1]]: readonly [Span, Span]): Matrix | undefined {
  const covers = ([from, to]: Span, first: number, last: number) => from <= first && last <= to
  const part = details.find((one) => one.pool === 1 && covers(one.queries, q0, q1) && covers(one.keys, k0, k1))
  if (!part) return undefined
  const { map, queries, keys } = part
  const data = new Float32Array((q1 - q0) * (k1 - k0))
  for (let q = q0; q < q1; q++) {
    const from = (q - queries[0]) * map.cols - keys[0]
    data.set(map.data.subarray(from + k0, from + k1), (q - q0) * (k1 - k0))
  }
  return { data, rows: q1 - q0, cols: k1 - k0, exact: true }
}

/** What queries attend to, as a mean over these rows, [K]; undefined unless one part has all of it. */
export function rowOf(lines: readonly Detail[], queries: Span, keys: number): Float32Array | undefined {
  const rows = entriesOf(lines, [queries, [0, keys]])
  return rows && rowMean(rows, rowsOf(rows))
}

/** What attends to keys, as a sum over these columns, [Q]; undefined unless one part has all of it. */
export function columnOf(lines: readonly Detail[], keys: Span, queries: number): Float32Array | undefined {
  const columns = entriesOf(lines, [[0, queries], keys])
  return (
    columns &&
    columnSum(
      columns,
      Array.from({ length: columns.cols }, (_, k) => k),
    )
  )
}

const rowsOf = ({ rows }: Matrix) => Array.from({ length: rows }, (_, row) => row)

/** The span of adjacent tokens; undefined if they are none, not adjacent, or too many to read at once. */
export function adjacent(tokens: readonly number[]): Span | undefined {
  const [from, to] = [Math.min(...tokens), Math.max(...tokens) + 1]
  return tokens.length > 0 && tokens.length <= MOST_LINES && to - from === tokens.length ? [from, to] : undefined
}

/** Rows or columns that are read together: those of a long word. */
const MOST_LINES = 24

const has = ([from, to]: Span, [first, last]: Span) => from <= first && last <= to

const visibleSpans = ({ top, left, size }: Window, queries: number, keys: number): [Span, Span] => [
  visibleCells(queries, top, size),
  visibleCells(keys, left, size),
]

/** The sharpest part that has all that a window shows. */
function sharpest(details: readonly Detail[], [rows, columns]: readonly [Span, Span]): Detail | undefined {
  const parts = details.filter((part) => has(part.queries, rows) && has(part.keys, columns))
  return parts.sort((a, b) => a.pool - b.pool)[0]
}

/** Queries and keys along a cell of what a window shows: of the sharpest part that has all of it, otherwise of the map; Infinity for a thumbnail. */
export function drawnPool(map: Matrix, details: readonly Detail[], window: Window, queries: number, keys: number) {
  if (map.exact) return 1
  const part = sharpest(details, visibleSpans(window, queries, keys))
  return Math.min(part?.pool ?? Number.POSITIVE_INFINITY, map.pool ?? Number.POSITIVE_INFINITY)
}

/** The largest magnitude that a window shows, as sharp as it is drawn. */
export function largestVisible(
  map: Matrix,
  details: readonly Detail[],
  window: Window,
  queries: number,
  keys: number,
): number {
  const [rows, columns] = visibleSpans(window, queries, keys)
  const whole = wholePart(map, queries, keys)
  const part = map.exact ? undefined : (sharpest(details, [rows, columns]) ?? (whole && { ...whole, map }))
  if (!part) return visibleMax(map, window)
  const cells = ([from, to]: Span, first: number): Span => [
    Math.floor((from - first) / part.pool),
    Math.ceil((to - first) / part.pool),
  ]
  const [[q0, q1], [k0, k1]] = [cells(rows, part.queries[0]), cells(columns, part.keys[0])]
  let largest = 0
  for (let q = q0; q < q1; q++)
    for (let at = q * part.map.cols + k0; at < q * part.map.cols + k1; at++)
      largest = Math.max(largest, Math.abs(part.map.data[at]) || 0)
  return largest
}

/** The pool that a window is read with. */
export const wantedPool = (window: Window, queries: number, keys: number): number =>
  partFor(window, queries, keys)?.pool ?? overviewPool(queries, keys)

const within = ([from, to]: Span, tokens: readonly number[]) => tokens.every((token) => token >= from && token < to)

/** The value of tokens, read as one: exact if the map is, or a part of it with all of them; otherwise about that of the first ones. */
export function cellValue(
  map: Matrix,
  details: readonly Detail[],
  [rows, queries]: [readonly number[], number],
  [columns, keys]: [readonly number[], number],
): Cell {
  if (map.exact) return { exact: true, value: groupValue(map, rows, columns) }
  const part = details.find((one) => one.pool === 1 && within(one.queries, rows) && within(one.keys, columns))
  if (!part) return { exact: false, value: thumbnailValue(map, [rows[0], queries], [columns[0], keys]) }
  const from = (start: number, tokens: readonly number[]) => tokens.map((token) => token - start)
  return { exact: true, value: groupValue(part.map, from(part.queries[0], rows), from(part.keys[0], columns)) }
}
