/** Alignment of the tokens of two analyses, and comparison of maps along it. */
import type { Token } from '../data/analysis'
import type { Axis } from './axis'
import { type Matrix, rounding, sumError } from './matrix'

/** Adjacent tokens of one analysis and the tokens of the other that they are aligned with. */
export interface TokenPair {
  tokens: readonly number[]
  others: readonly number[]
  text: string
  otherText: string
}

export interface Alignment {
  by: 'token' | 'word'
  /** The share of tokens that are aligned, 0..1, of the analysis with fewer tokens. */
  share: number
  queries: readonly TokenPair[]
  /** The same array as the queries except for cross-attention. */
  keys: readonly TokenPair[]
}

/** Similarity of the maps of heads, [L][H]; null where undefined. */
export interface Likeness {
  cosine: (number | null)[][]
  /** Jensen-Shannon divergence in bits; null for maps with negative entries. */
  divergence: (number | null)[][] | null
}

/** Below this share of aligned tokens, maps of two texts are not comparable. */
export const ENOUGH = 0.5

export const flipPairs = (pairs: readonly TokenPair[]): TokenPair[] =>
  pairs.map(({ tokens, others, text, otherText }) => ({
    tokens: others,
    others: tokens,
    text: otherText,
    otherText: text,
  }))

/** The pairs as an axis of a map; a token without a partner has place -1. If the words differ, the label names both. */
export function pairAxis(pairs: readonly TokenPair[], tokens: readonly Token[]): Axis {
  const of = new Int32Array(tokens.length).fill(-1)
  for (const [place, pair] of pairs.entries()) for (const token of pair.tokens) of[token] = place
  return {
    labels: pairs.map(({ text, otherText }) => (alike(text, otherText) ? text : `${text}/${otherText}`)),
    special: pairs.map((pair) => tokens[pair.tokens[0]].kind === 'special'),
    start: Int32Array.from([...pairs.map((pair) => pair.tokens[0]), tokens.length]),
    of,
  }
}

const alike = (a: string, b: string) => a.toLowerCase() === b.toLowerCase()

/** The tokens aligned with some tokens; `axis` is that of the pairs on their side. */
export const pairedTokens = (axis: Axis, pairs: readonly TokenPair[], tokens: readonly number[]): number[] => [
  ...new Set(tokens.flatMap((token) => (axis.of[token] < 0 ? [] : pairs[axis.of[token]].others))),
]

/** The aligned part of an exact map: the sum over the key tokens of a pair, the mean over its query tokens. */
export function pairedMap(map: Matrix, queries: readonly TokenPair[], keys: readonly TokenPair[]): Matrix {
  const data = new Float32Array(queries.length * keys.length)
  for (const [v, { tokens: rows }] of queries.entries()) {
    for (const [w, { tokens: columns }] of keys.entries()) {
      let sum = 0
      for (const q of rows) for (const k of columns) sum += map.data[q * map.cols + k]
      data[v * keys.length + w] = sum / rows.length
    }
  }
  const pieces = Math.max(1, ...keys.map(({ tokens }) => tokens.length))
  return { data, rows: queries.length, cols: keys.length, exact: map.exact, ...rounding(sumError(map, pieces)) }
}

interface HeadCosine {
  layer: number
  head: number
  value: number
}
/** Cosines above are those of equal maps, up to rounding. */
const EQUAL = 0.99995

/** The cosine of two maps without some rows and columns, such as those of special tokens; null if one is zero there, or has no reading. */
export function partialCosine(
  one: Matrix,
  other: Matrix,
  rows: readonly boolean[],
  columns: readonly boolean[],
): number | null {
  let [both, first, second] = [0, 0, 0]
  for (let q = 0; q < one.rows; q++) {
    if (rows[q]) continue
    for (let k = 0; k < one.cols; k++) {
      if (columns[k]) continue
      const [a, b] = [one.data[q * one.cols + k], other.data[q * other.cols + k]]
      if (Number.isNaN(a) || Number.isNaN(b)) continue
      both += a * b
      first += a * a
      second += b * b
    }
  }
  return first > 0 && second > 0 ? both / Math.sqrt(first * second) : null
}

/** The heads whose two maps are least alike, most different first; heads whose maps are equal are left out. */
export function leastAlike(cosine: Likeness['cosine'], count: number): HeadCosine[] {
  const all = cosine.flatMap((row, layer) =>
    row.flatMap((value, head) => (value === null ? [] : [{ layer, head, value }])),
  )
  return all
    .filter(({ value }) => value < EQUAL)
    .sort((a, b) => a.value - b.value)
    .slice(0, count)
}

/** The head whose two maps are most alike; undefined if none has a reading. */
export function mostAlike(cosine: Likeness['cosine']): HeadCosine | undefined {
  let found: HeadCosine | undefined
  for (const [layer, row] of cosine.entries()) {
    for (const [head, value] of row.entries()) {
      if (value !== null && (!found || value > found.value)) found = { layer, head, value }
    }
  }
  return found
}

interface SimilarHead {
  layer: number
  head: number
  cosine: number
  divergence: number | null
}

/** The other heads with a number, most similar first: those of largest cosine, or of least divergence. Equal ones stay in order. */
export function nearestHeads(
  { cosine, divergence }: Likeness,
  own: { layer: number; head: number },
  by: 'cosine' | 'divergence',
): SimilarHead[] {
  const all = cosine.flatMap((row, layer) =>
    row.flatMap((value, head): SimilarHead[] =>
      value === null || (layer === own.layer && head === own.head)
        ? []
        : [{ layer, head, cosine: value, divergence: divergence?.[layer]?.[head] ?? null }],
    ),
  )
  if (by === 'cosine') return all.sort((a, b) => b.cosine - a.cosine)
  return all.sort((a, b) => (a.divergence ?? Infinity) - (b.divergence ?? Infinity))
}
