/** Which tokens of two analyses stand for the same, and maps laid over each other by it. */
import type { Token } from '../data/analysis'
import type { Axis } from './axis'
import { type Matrix, rounding } from './matrix'

/** Neighbouring tokens of one analysis and their counterparts in the other. */
export interface TokenPair {
  tokens: readonly number[]
  others: readonly number[]
  text: string
  otherText: string
}

export interface Alignment {
  by: 'token' | 'word'
  /** Of the tokens that have a counterpart, 0..1, in whichever analysis has fewer. */
  share: number
  queries: readonly TokenPair[]
  /** The same array as the queries, but for cross-attention. */
  keys: readonly TokenPair[]
}

/** How alike the maps of heads are, [L][H]; null where that is undefined. */
export interface Likeness {
  cosine: (number | null)[][]
  /** Jensen-Shannon divergence in bits; null for maps that may be negative. */
  divergence: (number | null)[][] | null
}

/** With fewer counterparts the maps of two texts say nothing about each other. */
export const ENOUGH = 0.5

export const flipPairs = (pairs: readonly TokenPair[]): TokenPair[] =>
  pairs.map(({ tokens, others, text, otherText }) => ({
    tokens: others,
    others: tokens,
    text: otherText,
    otherText: text,
  }))

/** The pairs as the axis of a map: the place of a token without a counterpart is -1. Where the two differ in words, both are named. */
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

/** Counterparts of tokens: `axis` is that of the pairs on the side of the tokens. */
export const pairedTokens = (axis: Axis, pairs: readonly TokenPair[], tokens: readonly number[]): number[] => [
  ...new Set(tokens.flatMap((token) => (axis.of[token] < 0 ? [] : pairs[axis.of[token]].others))),
]

/** The part of an exact map that has counterparts: the sum over the key tokens of a pair, the mean over its query tokens. */
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
  return { data, rows: queries.length, cols: keys.length, exact: map.exact, ...rounding((map.error ?? 0) * pieces) }
}

/** The head whose two maps are least alike, and how alike they are. */
function extreme(cosine: Likeness['cosine'], sign: 1 | -1): { layer: number; head: number; value: number } | undefined {
  let found: { layer: number; head: number; value: number } | undefined
  for (const [layer, row] of cosine.entries()) {
    for (const [head, value] of row.entries()) {
      if (value !== null && (!found || sign * value > sign * found.value)) found = { layer, head, value }
    }
  }
  return found
}

export const leastAlike = (cosine: Likeness['cosine']) => extreme(cosine, -1)
export const mostAlike = (cosine: Likeness['cosine']) => extreme(cosine, 1)
