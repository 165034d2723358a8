/** Which connections of a head are drawn: per query the few keys that carry most of its weight. */
import { isGap, type Matrix } from './matrix'

export type Rule = { name: 'mass'; mass: number } | { name: 'top-k'; k: number } | { name: 'value'; value: number }

/** Columns of equal length: edge i runs from query[i] to key[i]. Sorted by query, then by key. */
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
  const columns = new Columns(map.rows)
  const left = Uint8Array.from({ length: map.cols }, (_, k) => Number(skipKeys?.[k] ?? false))
  const least = leastOf(rule, map.cols)
  const row = new Row(map.cols)
  for (let q = 0; q < map.rows; q++) {
    columns.start[q] = columns.length
    if (skip?.[q] || isGap(map, q)) continue
    row.read(map.data, q * map.cols, left)
    columns.take(q, row, least(row))
  }
  columns.start[map.rows] = columns.length
  return columns.edges()
}

/** Where a row is cut: what is stronger is drawn, and of what is exactly as strong the keys up to `key`. */
interface Cut {
  bits: number
  key: number
}

/** One row of a map by magnitude. The bits of a non-negative float order like the float, so bits are compared. */
class Row {
  readonly magnitude: Float32Array
  readonly bits: Uint32Array
  readonly values: Float32Array

  constructor(readonly cols: number) {
    this.magnitude = new Float32Array(cols)
    this.bits = new Uint32Array(this.magnitude.buffer)
    this.values = new Float32Array(cols)
  }

  read(data: Float32Array, from: number, skip: Uint8Array): void {
    const { cols, magnitude, values } = this
    for (let k = 0; k < cols; k++) {
      values[k] = data[from + k]
      magnitude[k] = skip[k] ? 0 : Math.abs(values[k])
    }
  }
}

/** Grows as edges come. */
class Columns {
  length = 0
  readonly start: Int32Array
  #query = new Int32Array(1024)
  #key = new Int32Array(1024)
  #weight = new Float32Array(1024)

  constructor(rows: number) {
    this.start = new Int32Array(rows + 1)
  }

  take(q: number, { bits, values, cols }: Row, cut: Cut): void {
    while (this.length + cols > this.#key.length) this.#grow()
    for (let k = 0; k < cols; k++) {
      if (bits[k] === 0 || bits[k] < cut.bits || (bits[k] === cut.bits && k > cut.key)) continue
      this.#query[this.length] = q
      this.#key[this.length] = k
      this.#weight[this.length++] = values[k]
    }
  }

  #grow(): void {
    const twice = <T extends Int32Array | Float32Array>(old: T, made: T): T => {
      made.set(old)
      return made
    }
    const size = 2 * this.#key.length
    this.#query = twice(this.#query, new Int32Array(size))
    this.#key = twice(this.#key, new Int32Array(size))
    this.#weight = twice(this.#weight, new Float32Array(size))
  }

  edges(): Edges {
    const { length, start } = this
    return {
      query: this.#query.slice(0, length),
      key: this.#key.slice(0, length),
      weight: this.#weight.slice(0, length),
      start,
    }
  }
}

/** A hair of tolerance, so that 0.7 of ten equal keys is seven, not eight. */
const enough = (mass: number, total: number) => (mass - 1e-6) * total

function leastOf(rule: Rule, cols: number): (row: Row) => Cut {
  if (rule.name === 'value') {
    const bits = new Uint32Array(Float32Array.of(rule.value).buffer)[0]
    return () => ({ bits, key: cols })
  }
  const ranks = new Ranks(cols)
  if (rule.name === 'top-k') return (row) => ranks.cut(row, () => rule.k, false)
  return (row) => ranks.cut(row, (total) => enough(rule.mass, total), true)
}

/** Magnitudes share a bucket when the first 12 bits after the sign agree: within 6 % of each other. */
const BUCKETS = 4096
const KEYS = 2 ** 20

/**
 * Finds how far down a row the rule reaches without sorting it, which would cost two frames at 512 rows: a histogram tells the bucket,
 * and only the keys in that one are sorted; without a comparator, as bits and key fit into one double.
 */
class Ranks {
  #amount = new Float64Array(BUCKETS)
  #packed: Float64Array

  constructor(cols: number) {
    this.#packed = new Float64Array(cols)
  }

  /** `wanted` of the row's total: of its mass, or of the number of keys. */
  cut(row: Row, wanted: (total: number) => number, byMass: boolean): Cut {
    const { bits, magnitude, cols } = row
    const amount = this.#amount
    let [total, top, low] = [0, 0, BUCKETS]
    for (let k = 0; k < cols; k++) {
      if (bits[k] === 0) continue
      const bucket = bits[k] >>> 19
      amount[bucket] += byMass ? magnitude[k] : 1
      total += magnitude[k]
      if (bucket > top) top = bucket
      if (bucket < low) low = bucket
    }
    const goal = wanted(total)
    let sum = 0
    let bucket = top
    while (bucket > low && sum + amount[bucket] < goal) sum += amount[bucket--]
    amount.fill(0, low, top + 1)
    return this.#within(row, bucket, goal - sum, byMass)
  }

  #within({ bits, magnitude, cols }: Row, bucket: number, missing: number, byMass: boolean): Cut {
    const packed = this.#packed
    let count = 0
    for (let k = 0; k < cols; k++) {
      if (bits[k] !== 0 && bits[k] >>> 19 === bucket) packed[count++] = bits[k] * KEYS + (KEYS - 1 - k)
    }
    packed.subarray(0, count).sort()
    let at = count
    let sum = 0
    while (at > 0 && sum < missing) {
      at -= 1
      sum += byMass ? magnitude[keyOf(packed[at])] : 1
    }
    if (at === count) return { bits: Number.POSITIVE_INFINITY, key: 0 }
    return { bits: Math.floor(packed[at] / KEYS), key: keyOf(packed[at]) }
  }
}

const keyOf = (packed: number) => KEYS - 1 - (packed % KEYS)

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

/** Keys that take more than this of the weight on average are sinks (epsilon of the measure of that name). */
const SINK = 0.3

/** Keys that most queries rest on, by the mean of the magnitudes they receive. */
export const sinks = (means: Float32Array): boolean[] => {
  const total = means.reduce((sum, value) => sum + value, 0)
  return Array.from(means, (value) => value > SINK * total)
}
