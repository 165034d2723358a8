/** Which connections of a head are drawn: per query the few keys that carry most of its weight. */
import type { Matrix } from './matrix'

export type Rule = { name: 'mass'; mass: number } | { name: 'top-k'; k: number }

/** Columns of equal length: edge i runs from query[i] to key[i]. Sorted by query, strongest first within a query. */
export interface Edges {
  query: Int32Array
  key: Int32Array
  weight: Float32Array
  /** Edges of query q are start[q] .. start[q + 1]. */
  start: Int32Array
}

/** `skip[i]` leaves token i out on both sides; mass is then that of the keys that remain. */
export function selectEdges(map: Matrix, rule: Rule, skip?: readonly boolean[]): Edges {
  const query: number[] = []
  const key: number[] = []
  const weight: number[] = []
  const start = new Int32Array(map.rows + 1)
  const sorter = sorterFor(map.cols)
  for (let q = 0; q < map.rows; q++) {
    start[q] = query.length
    if (skip?.[q]) continue
    const row = map.data.subarray(q * map.cols, (q + 1) * map.cols)
    for (const k of selectRow(row, rule, sorter, skip)) {
      query.push(q)
      key.push(k)
      weight.push(row[k])
    }
  }
  start[map.rows] = query.length
  return { query: Int32Array.from(query), key: Int32Array.from(key), weight: Float32Array.from(weight), start }
}

function selectRow(row: Float32Array, rule: Rule, sorter: Sorter, skip?: readonly boolean[]): number[] {
  const ranked = sorter(row, skip)
  if (rule.name === 'top-k') return ranked.slice(0, rule.k)
  let total = 0
  for (const k of ranked) total += Math.abs(row[k])
  let sum = 0
  let taken = 0
  // Smallest set that reaches the share; a hair of tolerance so that 0.7 of ten equal keys is seven, not eight.
  while (taken < ranked.length && sum < (rule.mass - 1e-6) * total) sum += Math.abs(row[ranked[taken++]])
  return ranked.slice(0, taken)
}

type Sorter = (row: Float32Array, skip?: readonly boolean[]) => number[]

/**
 * Sorts keys by magnitude without a comparator, which would cost several frames at 512 tokens: the bits of a
 * non-negative float order like the float, so magnitude and key fit into one double (32 + 20 bits) to be sorted natively.
 */
function sorterFor(cols: number): Sorter {
  const magnitude = new Float32Array(cols)
  const bits = new Uint32Array(magnitude.buffer)
  const packed = new Float64Array(cols)
  const last = 2 ** 20 - 1
  return (row, skip) => {
    let count = 0
    for (let k = 0; k < cols; k++) magnitude[k] = Math.abs(row[k])
    for (let k = 0; k < cols; k++) {
      if (bits[k] !== 0 && !skip?.[k]) packed[count++] = bits[k] * 2 ** 20 + (last - k)
    }
    const sorted = packed.subarray(0, count).sort()
    return Array.from(sorted, (_, i) => last - (sorted[count - 1 - i] % 2 ** 20))
  }
}

/** Edge numbers that arrive at each key: the same edges seen from the other side. */
export function edgesByKey(edges: Edges, keys: number): { start: Int32Array; order: Int32Array } {
  const start = new Int32Array(keys + 1)
  for (const k of edges.key) start[k + 1]++
  for (let k = 0; k < keys; k++) start[k + 1] += start[k]
  const next = start.slice()
  const order = new Int32Array(edges.key.length)
  for (let e = 0; e < edges.key.length; e++) order[next[edges.key[e]]++] = e
  return { start, order }
}
