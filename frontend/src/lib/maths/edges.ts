/** Selection of the connections that are drawn: per query, the few keys that carry most of its weight. */
import { INFINITE, isGap, MAGNITUDE, type Matrix } from './matrix'

export type Rule = { name: 'mass'; mass: number } | { name: 'top-k'; k: number } | { name: 'value'; value: number }

/** Connections as they are drawn. */
export interface Connections {
  weight(query: number, key: number): number
  /** Visit every connection between these queries and keys, as ranges with exclusive ends. */
  within(queries: readonly [number, number], keys: readonly [number, number], visit: Visit): void
  leaving(query: number, visit: Visit): void
  arriving(key: number, visit: Visit): void
}

/**
 * The connections of a head, stored as one threshold per row and computed on demand: broad heads have a million connections at
 * 2,048 tokens, of which a few hundred are drawn.
 */
export class Edges implements Connections {
  readonly #bits: Uint32Array
  readonly #known: Uint8Array

  constructor(
    readonly map: Matrix,
    private readonly cuts: Thresholds,
    private readonly left: Uint8Array,
    private readonly cut: (row: number) => void,
  ) {
    this.#bits = bitsOf(map)
    this.#known = new Uint8Array(map.rows)
  }

  /** The number of connections. */
  get total(): number {
    for (let q = 0; q < this.map.rows; q++) this.#ask(q)
    return this.cuts.total
  }

  weight(query: number, key: number): number {
    return this.map.data[query * this.map.cols + key]
  }

  within([q0, q1]: readonly [number, number], [k0, k1]: readonly [number, number], visit: Visit): void {
    for (let q = q0; q < q1; q++) {
      this.#ask(q)
      for (let k = k0; k < k1; k++) if (this.#has(q, k)) visit(q, k)
    }
  }

  leaving(query: number, visit: Visit): void {
    this.within([query, query + 1], [0, this.map.cols], visit)
  }

  arriving(key: number, visit: Visit): void {
    this.within([0, this.map.rows], [key, key + 1], visit)
  }

  /** Whether any query attends to a later key. */
  get ahead(): boolean {
    for (let q = 0; q < this.map.rows; q++) {
      this.#ask(q)
      for (let k = q + 1; k < this.map.cols; k++) if (this.#has(q, k)) return true
    }
    return false
  }

  #ask(query: number): void {
    if (this.#known[query] === 1) return
    this.#known[query] = 1
    this.cut(query)
  }

  #has(query: number, key: number): boolean {
    const bits = this.#bits[query * this.map.cols + key] & MAGNITUDE
    const { bits: cut, key: last } = this.cuts
    if (bits === 0 || this.left[key] === 1 || bits > INFINITE) return false
    return bits > cut[query] || (bits === cut[query] && key <= last[query])
  }
}

export type Visit = (query: number, key: number) => void

/** The threshold of each row: larger magnitudes are drawn, and of equal ones the keys up to `key`. */
interface Thresholds {
  bits: Float64Array
  key: Int32Array
  /** The number of connections in rows computed so far. */
  total: number
}

const NEVER = Number.POSITIVE_INFINITY

const bitsOf = ({ data }: Matrix) => new Uint32Array(data.buffer, data.byteOffset, data.length)

/** `skip[i]` leaves token i out on both sides, and mass is that of the remaining keys. `skipKeys` for cross-attention. */
export function selectEdges(
  map: Matrix,
  rule: Rule,
  skip?: readonly boolean[],
  skipKeys: readonly boolean[] | undefined = skip,
): Edges {
  const left = Uint8Array.from({ length: map.cols }, (_, k) => Number(skipKeys?.[k] ?? false))
  const cuts: Thresholds = { bits: new Float64Array(map.rows).fill(NEVER), key: new Int32Array(map.rows), total: 0 }
  const ranks = new Ranks(map, left)
  const least = rule.name === 'value' ? new Uint32Array(Float32Array.of(rule.value).buffer)[0] : 0
  return new Edges(map, cuts, left, (q) => {
    if (skip?.[q] || isGap(map, q)) return
    if (rule.name === 'value') ranks.above(q, least, cuts)
    else if (rule.name === 'mass') ranks.byMass(q, rule.mass, cuts)
    else ranks.byCount(q, rule.k, cuts)
  })
}

/** A tolerance, so that 0.7 of ten equal keys is seven, not eight. */
const enough = (mass: number, total: number) => (mass - 1e-6) * total

/** Magnitudes share a bucket if the first 12 bits after the sign agree, which is within 6 %. */
const BUCKETS = 4096
const SHIFT = 19
const KEYS = 2 ** 20

/**
 * Finds how far down a row a rule reaches without sorting it, which would take two frames at 512 rows: a histogram finds the bucket,
 * and only its keys are sorted, without a comparator, since bits and key fit into one double.
 */
class Ranks {
  readonly #bits: Uint32Array
  readonly #mass = new Float64Array(BUCKETS)
  readonly #count = new Int32Array(BUCKETS)
  readonly #packed: Float64Array
  /** The row that was read last. */
  #low = BUCKETS
  #top = 0
  #total = 0

  constructor(
    private readonly map: Matrix,
    private readonly left: Uint8Array,
  ) {
    this.#bits = bitsOf(map)
    this.#packed = new Float64Array(map.cols)
  }

  above(q: number, least: number, cuts: Thresholds): void {
    const { cols } = this.map
    cuts.bits[q] = least
    cuts.key[q] = cols
    for (let k = 0; k < cols; k++) {
      const bits = this.#bits[q * cols + k] & MAGNITUDE
      if (bits !== 0 && bits >= least && this.left[k] === 0) cuts.total += 1
    }
  }

  byMass(q: number, mass: number, cuts: Thresholds): void {
    this.#read(q, true)
    const goal = enough(mass, this.#total)
    let [bucket, sum, count] = [this.#top, 0, 0]
    while (bucket > this.#low && sum + this.#mass[bucket] < goal) {
      sum += this.#mass[bucket]
      count += this.#count[bucket--]
    }
    const sorted = this.#sorted(q, bucket)
    let at = sorted.length
    while (at > 0 && sum < goal) sum += Math.abs(this.map.data[q * this.map.cols + keyOf(sorted[--at])])
    this.#cut(q, sorted, at, count, cuts)
  }

  byCount(q: number, wanted: number, cuts: Thresholds): void {
    this.#read(q, false)
    let [bucket, count] = [this.#top, 0]
    while (bucket > this.#low && count + this.#count[bucket] < wanted) count += this.#count[bucket--]
    const sorted = this.#sorted(q, bucket)
    this.#cut(q, sorted, Math.max(0, sorted.length - (wanted - count)), count, cuts)
  }

  /** Draw the sorted bucket from `at` on, and the `count` keys of the buckets above. */
  #cut(q: number, sorted: Float64Array, at: number, count: number, cuts: Thresholds): void {
    cuts.total += count + sorted.length - at
    if (at === sorted.length) return
    cuts.bits[q] = Math.floor(sorted[at] / KEYS)
    cuts.key[q] = keyOf(sorted[at])
  }

  /** Masses are not needed to count, and floats of unoptimised loops are garbage. */
  #read(q: number, masses: boolean): void {
    const { left } = this
    const [bits, mass, count] = [this.#bits, this.#mass, this.#count]
    const { cols, data } = this.map
    mass.fill(0, this.#low, this.#top + 1)
    count.fill(0, this.#low, this.#top + 1)
    let [low, top, total] = [BUCKETS, 0, 0]
    for (let k = 0, at = q * cols; k < cols; k++, at++) {
      const size = bits[at] & MAGNITUDE
      if (size === 0 || left[k] === 1) continue
      const bucket = size >>> SHIFT
      count[bucket] += 1
      if (bucket > top) top = bucket
      if (bucket < low) low = bucket
      if (!masses) continue
      const weight = Math.abs(data[at])
      mass[bucket] += weight
      total += weight
    }
    this.#low = low
    this.#top = top
    this.#total = total
  }

  /** Keys of one bucket with their bits, in ascending order; of equal ones the last first. */
  #sorted(q: number, bucket: number): Float64Array {
    const { cols } = this.map
    let count = 0
    for (let k = 0; k < cols; k++) {
      const bits = this.#bits[q * cols + k] & MAGNITUDE
      if (bits !== 0 && bits >>> SHIFT === bucket && this.left[k] === 0)
        this.#packed[count++] = bits * KEYS + (KEYS - 1 - k)
    }
    return this.#packed.subarray(0, count).sort()
  }
}

const keyOf = (packed: number) => KEYS - 1 - (packed % KEYS)
