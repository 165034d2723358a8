/** Maps as factors: what determines the map of a head, from which any part of it is computed. The same as the server's `core/factors.py`. */
import type { Span } from './highlight'

export interface Factors {
  queries: number
  keys: number
  /** So many of the first rows are kept as they are. */
  kept?: number
  /** Write the entries of some queries and keys, row by row. */
  fill(out: Float32Array, rows: Span, columns: Span): void
}

/** Vectors of `width` numbers, one after another. */
export interface Vectors {
  data: Float32Array
  width: number
}

/** The products of a vector with some others. Four at a time, as each sum waits for its last addition. */
function multiply(one: Vectors, at: number, others: Vectors, [from, to]: Span, out: Float64Array): void {
  const { width, data } = others
  const vector = one.data.subarray(at * width, (at + 1) * width)
  let other = from
  for (; other + 4 <= to; other += 4) {
    let [a, b, c, d] = [0, 0, 0, 0]
    for (let i = 0, place = other * width; i < width; i++, place++) {
      const value = vector[i]
      a += value * data[place]
      b += value * data[place + width]
      c += value * data[place + 2 * width]
      d += value * data[place + 3 * width]
    }
    const to = other - from
    out[to] = a
    out[to + 1] = b
    out[to + 2] = c
    out[to + 3] = d
  }
  for (; other < to; other++) {
    let sum = 0
    for (let i = 0; i < width; i++) sum += vector[i] * data[other * width + i]
    out[other - from] = sum
  }
}

/** Which keys a query sees: all, those up to itself (prefix), those from `begin` to before `end`, or those of a mask [Q, K]. */
export interface Visible {
  rule: 'all' | 'prefix' | 'interval' | 'mask'
  begin?: ArrayLike<number>
  end?: ArrayLike<number>
  mask?: ArrayLike<number>
}

function clip({ rule, begin, end }: Visible, query: number, [from, to]: Span): Span {
  if (rule === 'prefix') return [from, Math.min(to, query + 1)]
  return begin && end ? [Math.max(from, begin[query]), Math.min(to, end[query])] : [from, to]
}

/** What is added to scores: by key [K], by offset of the key from the query [Q + K - 1], or a matrix [Q, K]. */
export interface Bias {
  by: 'key' | 'offset' | 'matrix'
  values: Float32Array
}

/** Weights of a softmax: exp(score - lse), where score = cap(query · key * scaling) + bias. */
export interface WeightTerms {
  query: Vectors
  key: Vectors
  /** By query, the logarithm of the sum of exponentials, a learned sink included. */
  lse: Float32Array
  scaling: number
  softcap: number | null
  visible: Visible
  bias: Bias | null
}

export function weightFactors(terms: WeightTerms): Factors {
  const { query, key, lse, scaling, softcap, visible, bias } = terms
  const [queries, keys] = [lse.length, key.data.length / key.width]
  const strides = { key: [0, 0], offset: [-1, queries - 1], matrix: [keys, 0] }
  const [perQuery, start] = strides[bias?.by ?? 'key']
  return {
    queries,
    keys,
    fill(out, [first, last], columns) {
      const wide = columns[1] - columns[0]
      const scores = new Float64Array(wide)
      out.fill(0, 0, (last - first) * wide)
      for (let q = first; q < last; q++) {
        const [from, to] = clip(visible, q, columns)
        multiply(query, q, key, [from, to], scores)
        for (let i = 0; i < to - from; i++) {
          let score = scores[i] * scaling
          if (softcap !== null) score = Math.tanh(score / softcap) * softcap
          if (bias) score += bias.values[start + q * perQuery + from + i]
          const seen = !visible.mask || visible.mask[q * keys + from + i]
          if (seen) out[(q - first) * wide + from - columns[0] + i] = Math.exp(score - lse[q])
        }
      }
    },
  }
}

/** Rows in the span of some columns: coefficients · basis; of a causal model without keys that a row does not see. The first rows are kept as they are. */
export interface ProjectionTerms {
  coefficients: Vectors
  basis: Vectors
  /** [F, F] */
  first: Float32Array
  causal: boolean
}

export function projectionFactors({ coefficients, basis, first, causal }: ProjectionTerms): Factors {
  const kept = Math.sqrt(first.length)
  const rule: Visible = { rule: causal ? 'prefix' : 'all' }
  return {
    queries: kept + coefficients.data.length / coefficients.width,
    keys: basis.data.length / basis.width,
    kept,
    fill(out, [from, to], columns) {
      const wide = columns[1] - columns[0]
      const row = new Float64Array(wide)
      for (let q = from; q < to; q++) {
        const [begin, end] = q < kept ? [columns[0], Math.min(columns[1], kept)] : clip(rule, q, columns)
        if (q >= kept) multiply(coefficients, q - kept, basis, [begin, end], row)
        else for (let k = begin; k < end; k++) row[k - begin] = first[q * kept + k]
        row.fill(0, Math.max(0, end - begin))
        out.set(row, (q - from) * wide)
      }
    },
  }
}

/** By how much factors may differ from a map. */
const NOISE = 1e-5

/** The difference of two maps. A row that is kept as it is, and differs by less than NOISE everywhere, is 0: a row without a null space has exactly nothing beyond it. */
export function remainder(whole: Factors, part: Factors): Factors {
  const kept = part.kept ?? 0
  function fill(out: Float32Array, rows: Span, columns: Span): void {
    const minus = new Float32Array((rows[1] - rows[0]) * (columns[1] - columns[0]))
    whole.fill(out, rows, columns)
    part.fill(minus, rows, columns)
    for (let i = 0; i < minus.length; i++) out[i] -= minus[i]
  }
  return {
    ...whole,
    fill(out, rows, columns) {
      fill(out, rows, columns)
      const [wide, row] = [columns[1] - columns[0], new Float32Array(kept)]
      // These see no key from `kept` on.
      for (let q = rows[0]; q < Math.min(rows[1], kept); q++) {
        fill(row, [q, q + 1], [0, kept])
        if (row.every((entry) => Math.abs(entry) < NOISE)) out.fill(0, (q - rows[0]) * wide, (q - rows[0] + 1) * wide)
      }
    },
  }
}

/** A map that is kept as such. */
export const wholeMap = (data: Float32Array, keys: number): Factors => ({
  queries: data.length / keys,
  keys,
  fill(out, [from, to], [first, last]) {
    for (let q = from; q < to; q++)
      out.set(data.subarray(q * keys + first, q * keys + last), (q - from) * (last - first))
  },
})

/** The map of a head that is not there. */
export const noMap = (queries: number, keys: number): Factors => ({
  queries,
  keys,
  fill: (out) => void out.fill(Number.NaN),
})
