/** Special tokens and sinks, which take most of the weight, and maps without them. */
import type { AttentionWindow, Token } from '../data/analysis'
import { type Axis, membersOf, type Outline, placeSums } from './axis'
import { columnMeans, isGap, type Matrix, type Sums } from './matrix'

/** A sink receives more than this share of the attention of the queries that can see it (epsilon of the measure of that name). */
const SINK = 0.3

/** The queries that see each key, as first and last (exclusive), of `rows` queries. Without a window all do. */
const seers =
  (rows: number, window: AttentionWindow | null) =>
  (key: number): [number, number] =>
    window ? [Math.max(0, key - window[1]), Math.min(rows, key + window[0] + 1)] : [0, rows]

/** Sums up to each entry; the first is 0. */
function runningSums(values: ArrayLike<number>): Float64Array {
  const sums = new Float64Array(values.length + 1)
  for (let i = 0; i < values.length; i++) sums[i + 1] = sums[i] + values[i]
  return sums
}

/**
 * Keys that receive more than SINK of the attention of the queries that can see them, counted by magnitude; the same rule as the server's. At least half as
 * many queries must see a sink as see any other key: the last tokens of a causal map attend mostly to themselves.
 */
export function findSinks(map: Matrix, window: AttentionWindow | null): boolean[] {
  const { data, rows, cols } = map
  const [received, given] = [new Float64Array(cols), new Float64Array(rows)]
  for (let q = 0; q < rows; q++) {
    if (isGap(map, q)) continue
    for (let k = 0; k < cols; k++) {
      const size = Math.abs(data[q * cols + k])
      received[k] += size
      given[q] += size
    }
  }
  const sums = runningSums(given)
  const seen = Array.from(received, (_, k) => seers(rows, window)(k))
  const most = Math.max(...seen.map(([first, last]) => last - first))
  return seen.map(([first, last], k) => received[k] > SINK * (sums[last] - sums[first]) && 2 * (last - first) >= most)
}

/** Mean magnitude that the keys of each place receive together from the queries that can see any of them; queries without a reading are ignored. */
export function meanReceived(map: Matrix, window: AttentionWindow | null, keys: Axis): Float32Array {
  const read = Array.from({ length: map.rows }, (_, q) => Number(!isGap(map, q)))
  const rows = read.reduce((sum, one) => sum + one, 0)
  const received = columnMeans(map).map((mean) => mean * rows)
  return meanOfSeers(received, read, window, keys)
}

/** The same from the sums of a map. */
export const meanOfSums = (
  { queries, keys: received }: Sums,
  window: AttentionWindow | null,
  keys: Axis,
): Float32Array =>
  meanOfSeers(
    received,
    Array.from(queries, (sum) => Number(!Number.isNaN(sum))),
    window,
    keys,
  )

/** `read`: 1 for queries with a reading. */
function meanOfSeers(
  received: Float32Array,
  read: readonly number[],
  window: AttentionWindow | null,
  keys: Axis,
): Float32Array {
  const before = runningSums(read)
  const seen = seers(read.length, window)
  return placeSums(keys, received).map((sum, place) => {
    const tokens = membersOf(keys)[place]
    const sees = before[seen(tokens[tokens.length - 1])[1]] - before[seen(tokens[0])[0]]
    return sees > 0 ? sum / sees : 0
  })
}

/** Which tokens are special or, by `sinks`, sinks. */
export const areLeft = (tokens: readonly Token[], sinks: readonly boolean[]): boolean[] =>
  tokens.map(({ kind }, i) => kind === 'special' || (sinks[i] ?? false))

/** Which places of an axis contain such a token. */
export function placesOf(axis: Axis, tokens: readonly boolean[]): boolean[] {
  const found = axis.labels.map(() => false)
  for (const [token, is] of tokens.entries()) if (is && axis.of[token] >= 0) found[axis.of[token]] = true
  return found
}

/** The indices of the places that stay; null if none goes, or none would stay. */
export function keptPlaces(gone: readonly boolean[]): number[] | null {
  const kept = gone.flatMap((is, place) => (is ? [] : [place]))
  return kept.length === gone.length || kept.length === 0 ? null : kept
}

/** The axis of some of its places; tokens elsewhere have place -1. */
export function pickAxis(axis: Axis, kept: readonly number[] | null): Axis {
  if (!kept) return axis
  const place = new Int32Array(axis.labels.length).fill(-1)
  for (const [now, before] of kept.entries()) place[before] = now
  return {
    labels: kept.map((at) => axis.labels[at]),
    special: kept.map((at) => axis.special[at]),
    start: Int32Array.from([...kept.map((at) => axis.start[at]), axis.start[kept[kept.length - 1] + 1]]),
    of: axis.of.map((at) => (at < 0 ? -1 : place[at])),
    ...(axis.sentences ? { sentences: kept.map((at) => axis.sentences![at]) } : {}),
    ...(axis.outline ? { outline: pickOutline(axis.outline, kept) } : {}),
  }
}

const pickOutline = ({ names, rank }: Outline, kept: readonly number[]): Outline => ({
  names: kept.map((at) => names[at]),
  rank: Uint8Array.from(kept, (at) => rank[at]),
})

/** The map of some of its rows and columns. */
export function pickMap(map: Matrix, rows: readonly number[] | null, cols: readonly number[] | null): Matrix {
  if (!rows && !cols) return map
  const [height, width] = [rows?.length ?? map.rows, cols?.length ?? map.cols]
  const data = new Float32Array(height * width)
  for (let y = 0; y < height; y++) {
    const from = (rows ? rows[y] : y) * map.cols
    for (let x = 0; x < width; x++) data[y * width + x] = map.data[from + (cols ? cols[x] : x)]
  }
  return { ...map, data, rows: height, cols: width }
}

/** The map with 0 in the marked columns, so that they count for no scale. Rows without a reading stay without. */
export function blankColumns(map: Matrix, marked: readonly boolean[]): Matrix {
  if (!marked.includes(true)) return map
  const data = map.data.slice()
  for (let q = 0; q < map.rows; q++) {
    if (isGap(map, q)) continue
    for (let k = 0; k < map.cols; k++) if (marked[k]) data[q * map.cols + k] = 0
  }
  return { ...map, data }
}
