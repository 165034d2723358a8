/** Special tokens and sinks, which take most of the weight, and maps without them. */
import type { Token } from '../data/analysis'
import { type Axis, membersOf, placeSums } from './axis'
import { columnMeans, isGap, type Matrix } from './matrix'

/** A sink receives more than this share of the attention of the queries that can see it (epsilon of the measure of that name). */
const SINK = 0.3

/** Whether keys are seen by their own query and later ones only. */
const isPrefix = (map: Matrix, causal: boolean) => causal && map.rows === map.cols

/**
 * Keys that receive more than SINK of the attention of the queries that can see them, counted by magnitude; the same rule as the server's. In a causal
 * map, at least half of the queries must see a sink: the last tokens attend mostly to themselves.
 */
export function findSinks(map: Matrix, causal: boolean): boolean[] {
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
  const prefix = isPrefix(map, causal)
  let seen = 0
  for (let q = 0; q < rows; q++) seen += given[q]
  return Array.from(received, (amount, k) => {
    const sink = amount > SINK * seen && !(prefix && 2 * k > rows)
    if (prefix) seen -= given[k]
    return sink
  })
}

/** Mean magnitude that the keys of each place receive together from the queries that can see any of them; queries without a reading are ignored. */
export function meanReceived(map: Matrix, causal: boolean, keys: Axis): Float32Array {
  const sums = placeSums(keys, columnMeans(map))
  if (!isPrefix(map, causal)) return sums
  const read = Array.from({ length: map.rows }, (_, q) => Number(!isGap(map, q)))
  const all = read.reduce((sum, one) => sum + one, 0)
  // The number of queries from each key on.
  const seen = Float64Array.from(read)
  for (let q = map.rows - 2; q >= 0; q--) seen[q] += seen[q + 1]
  return sums.map((sum, place) => {
    const sees = seen[membersOf(keys)[place][0]]
    return sees > 0 ? (sum * all) / sees : 0
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
  }
}

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
