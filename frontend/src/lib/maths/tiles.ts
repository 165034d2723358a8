/** Parts of a map, computed from its factors in slices of time, between which the page answers its reader. */
import type { Axes } from './axis'
import type { Part } from './details'
import type { Factors } from './factors'
import type { Sums } from './matrix'

/** Entries computed between two looks at the clock, and milliseconds until the page gets its turn. */
const ENTRIES = 16 * 1024
const SLICE_MS = 12

export interface Computed {
  /** The part, row by row. */
  data: Float32Array
  /** The sums of magnitudes of its rows and columns. */
  sums: Sums
}

const turn = () => new Promise<void>((resolve) => void setTimeout(resolve))

/** Compute a part of a map. A cell is its entry of largest magnitude. */
export async function computePart(factors: Factors, { pool, queries, keys }: Part): Promise<Computed> {
  const wide = keys[1] - keys[0]
  const cells = Math.ceil(wide / pool)
  const data = new Float32Array(Math.ceil((queries[1] - queries[0]) / pool) * cells).fill(Number.NaN)
  const [given, received] = [new Float32Array(queries[1] - queries[0]), new Float64Array(wide)]
  const step = Math.max(1, Math.floor(ENTRIES / wide))
  const rows = new Float32Array(step * wide)
  let since = performance.now()
  for (let low = queries[0]; low < queries[1]; low += step) {
    const high = Math.min(low + step, queries[1])
    factors.fill(rows, [low, high], keys)
    for (let q = low; q < high; q++) {
      const row = rows.subarray((q - low) * wide, (q - low + 1) * wide)
      const at = q - queries[0]
      poolRow(row, pool, data.subarray(Math.floor(at / pool) * cells))
      given[at] = addRow(row, received)
    }
    if (performance.now() - since < SLICE_MS) continue
    await turn()
    since = performance.now()
  }
  return { data, sums: { queries: given, keys: Float32Array.from(received) } }
}

/** Compute a map folded to the places of axes: the sum over keys, the mean over those queries that have a reading. */
export async function computeFolded(factors: Factors, [queries, keys]: Axes): Promise<Float32Array> {
  const cols = keys.labels.length
  const [data, read] = [new Float64Array(queries.labels.length * cols), new Float64Array(queries.labels.length)]
  const step = Math.max(1, Math.floor(ENTRIES / factors.keys))
  const rows = new Float32Array(step * factors.keys)
  let since = performance.now()
  for (let low = 0; low < factors.queries; low += step) {
    const high = Math.min(low + step, factors.queries)
    factors.fill(rows, [low, high], [0, factors.keys])
    for (let q = low; q < high; q++) {
      const [from, place] = [(q - low) * factors.keys, queries.of[q]]
      if (Number.isNaN(rows[from])) continue
      read[place] += 1
      for (let k = 0; k < factors.keys; k++) data[place * cols + keys.of[k]] += rows[from + k]
    }
    if (performance.now() - since < SLICE_MS) continue
    await turn()
    since = performance.now()
  }
  return Float32Array.from(data, (sum, at) => sum / read[Math.floor(at / cols)])
}

/** Put what is larger into the cells of a row. A cell is NaN until it has an entry. */
function poolRow(row: Float32Array, pool: number, cells: Float32Array): void {
  if (pool === 1) cells.set(row)
  else
    for (let k = 0, cell = 0; k < row.length; cell++)
      for (const end = Math.min(k + pool, row.length); k < end; k++)
        if (!(Math.abs(row[k]) <= Math.abs(cells[cell])) && !Number.isNaN(row[k])) cells[cell] = row[k]
}

/** Add the magnitudes of a row to what keys receive, and return their sum; a row without a reading has none, and adds nothing. */
function addRow(row: Float32Array, received: Float64Array): number {
  let sum = 0
  for (let k = 0; k < row.length; k++) sum += Math.abs(row[k])
  if (!Number.isNaN(sum)) for (let k = 0; k < row.length; k++) received[k] += Math.abs(row[k])
  return sum
}
