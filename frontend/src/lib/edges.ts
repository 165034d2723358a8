/** Which connections of a head are drawn: per query the few keys that carry most of its weight. */
import { isGap, type Matrix } from './matrix'

export type Rule = { name: 'mass'; mass: number } | { name: 'top-k'; k: number }

/** Columns of equal length: edge i runs from query[i] to key[i]. Sorted by query, strongest first within a query. */
export interface Edges {
  query: Int32Array
  key: Int32Array
  weight: Float32Array
  /** Edges of query q are start[q] .. start[q + 1]. */
  start: Int32Array
}

/** `skip[i]` leaves token i out on both sides; mass is then that of the keys that remain. `skipKeys` where these are other tokens. */
export function selectEdges(
  map: Matrix,
  rule: Rule,
  skip?: readonly boolean[],
  skipKeys: readonly boolean[] | undefined = skip,
): Edges {
  const query: number[] = []
  const key: number[] = []
  const weight: number[] = []
  const start = new Int32Array(map.rows + 1)
  const strongest = strongestFirst(map.cols)
  for (let q = 0; q < map.rows; q++) {
    start[q] = query.length
    if (skip?.[q] || isGap(map, q)) continue
    const row = map.data.subarray(q * map.cols, (q + 1) * map.cols)
    for (const k of selectRow(row, rule, strongest, skipKeys)) {
      query.push(q)
      key.push(k)
      weight.push(row[k])
    }
  }
  start[map.rows] = query.length
  return { query: Int32Array.from(query), key: Int32Array.from(key), weight: Float32Array.from(weight), start }
}

function selectRow(row: Float32Array, rule: Rule, strongest: Strongest, skip?: readonly boolean[]): number[] {
  const { ranked, total } = strongest(row, rule, skip)
  if (rule.name === 'top-k') return ranked.slice(0, rule.k)
  let sum = 0
  let taken = 0
  while (taken < ranked.length && sum < enough(rule.mass, total)) sum += Math.abs(row[ranked[taken++]])
  return ranked.slice(0, taken)
}

/** A hair of tolerance, so that 0.7 of ten equal keys is seven, not eight. */
const enough = (mass: number, total: number) => (mass - 1e-6) * total

type Strongest = (row: Float32Array, rule: Rule, skip?: readonly boolean[]) => { ranked: number[]; total: number }

/** Magnitudes share a bucket when the first 12 bits after the sign agree: within 6 % of each other. */
const BUCKETS = 4096
const KEYS = 2 ** 20

/**
 * Keys by magnitude, strongest first, at least as many as the rule can take. Sorting all of 512 rows would cost two
 * frames. A histogram tells how far down the rule can reach, and only keys above that are sorted; and that without a
 * comparator: the bits of a non-negative float order like the float, so bits and key fit into one double.
 */
function strongestFirst(cols: number): Strongest {
  const magnitude = new Float32Array(cols)
  const bits = new Uint32Array(magnitude.buffer)
  const packed = new Float64Array(cols)
  const mass = new Float64Array(BUCKETS)
  const count = new Uint32Array(BUCKETS)
  return (row, rule, skip) => {
    mass.fill(0)
    count.fill(0)
    let total = 0
    let top = 0
    for (let k = 0; k < cols; k++) {
      magnitude[k] = skip?.[k] ? 0 : Math.abs(row[k])
      const bucket = bits[k] >>> 19
      mass[bucket] += magnitude[k]
      count[bucket] += 1
      total += magnitude[k]
      if (bucket > top) top = bucket
    }
    const lowest = reach(rule, total, top, mass, count)
    let kept = 0
    for (let k = 0; k < cols; k++) {
      if (bits[k] !== 0 && bits[k] >>> 19 >= lowest) packed[kept++] = bits[k] * KEYS + (KEYS - 1 - k)
    }
    const sorted = packed.subarray(0, kept).sort()
    const ranked = Array.from(sorted, (_, i) => KEYS - 1 - (sorted[kept - 1 - i] % KEYS))
    return { ranked, total }
  }
}

/** The lowest bucket the rule may take from. */
function reach(rule: Rule, total: number, top: number, mass: Float64Array, count: Uint32Array): number {
  const wanted = rule.name === 'mass' ? enough(rule.mass, total) : rule.k
  const amount: ArrayLike<number> = rule.name === 'mass' ? mass : count
  let sum = 0
  let bucket = top
  while (bucket > 0) {
    sum += amount[bucket]
    if (sum >= wanted) break
    bucket--
  }
  return bucket
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
