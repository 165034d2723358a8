/** Axes of a map: tokens, or words. */
import type { Token } from '../data/analysis'
import { tokenLabel } from '../text/labels'
import type { Box, Highlight, Span } from './highlight'
import { type Matrix, rounding, thumbnailValue } from './matrix'

export interface Axis {
  labels: readonly string[]
  /** Whether a place is a special token, such as [CLS]. */
  special: readonly boolean[]
  /** Tokens of place p are start[p] .. start[p + 1]. */
  start: Int32Array
  /** The place of each token. */
  of: Int32Array
}

/** Of a map whose queries and keys are the same tokens, both are one object. */
export type Axes = readonly [queries: Axis, keys: Axis]

/** The axes of a map along these tokens, or along their words. */
export function axesOf(queries: readonly Token[], keys: readonly Token[], words: boolean): Axes {
  const axisOf = words ? wordAxis : tokenAxis
  const rows = axisOf(queries)
  return [rows, keys === queries ? rows : axisOf(keys)]
}

export function tokenAxis(tokens: readonly Token[]): Axis {
  const start = Int32Array.from({ length: tokens.length + 1 }, (_, i) => i)
  return { labels: tokens.map(tokenLabel), special: tokens.map(isSpecial), start, of: start.subarray(0, tokens.length) }
}

/** Adjacent pieces of a word share a place; a token without a word, such as a special one, has its own. */
export function wordAxis(tokens: readonly Token[]): Axis {
  const starts = tokens.flatMap((token, i) => (i > 0 && sameWord(tokens[i - 1], token) ? [] : [i]))
  const start = Int32Array.from([...starts, tokens.length])
  const at = new Int32Array(tokens.length)
  for (const [place, from] of starts.entries()) at.fill(place, from, start[place + 1])
  const labels = starts.map((from, place) => wordLabel(tokens.slice(from, start[place + 1])))
  return { labels, special: starts.map((from) => isSpecial(tokens[from])), start, of: at }
}

const isSpecial = ({ kind }: Token) => kind === 'special'

const sameWord = (a: Token, b: Token) =>
  a.word !== null && a.word === b.word && a.segment === b.segment && !isSpecial(a) && !isSpecial(b)

/** Join pieces; of several for the same characters only the first is kept. */
function wordLabel(pieces: readonly Token[]): string {
  let [label, end] = [tokenLabel(pieces[0]), pieces[0].end]
  for (const piece of pieces.slice(1)) {
    if (piece.end <= end && piece.end > 0) continue
    label += (piece.start > end ? ' ' : '') + tokenLabel(piece)
    end = piece.end
  }
  return label
}

const countPlaces = ({ labels }: Axis) => labels.length

/** Reduce a map of tokens to words: the sum over the keys of a word, the mean over its queries. A thumbnail keeps the largest entry. */
export function groupMap(map: Matrix, queries: Axis, keys: Axis): Matrix {
  return map.exact ? grouped(map, queries, keys) : regridded(map, queries, keys)
}

function grouped(map: Matrix, queries: Axis, keys: Axis): Matrix {
  const [rows, cols] = [countPlaces(queries), countPlaces(keys)]
  const data = new Float32Array(rows * cols)
  const row = new Float64Array(cols)
  for (let v = 0; v < rows; v++) {
    row.fill(0)
    for (let q = queries.start[v]; q < queries.start[v + 1]; q++) {
      for (let k = 0; k < map.cols; k++) row[keys.of[k]] += map.data[q * map.cols + k]
    }
    const pieces = queries.start[v + 1] - queries.start[v]
    for (let w = 0; w < cols; w++) data[v * cols + w] = row[w] / pieces
  }
  const pieces = keys.start.reduce((most, at, place) => Math.max(most, at - (keys.start[place - 1] ?? at)), 1)
  return { data, rows, cols, exact: true, ...rounding((map.error ?? 0) * pieces) }
}

/** Resample a thumbnail to words, as a preview of the exact map. */
function regridded(map: Matrix, queries: Axis, keys: Axis): Matrix {
  const [rows, cols] = [countPlaces(queries), countPlaces(keys)]
  const data = new Float32Array(rows * cols)
  for (let q = 0; q < queries.of.length; q++) {
    for (let k = 0; k < keys.of.length; k++) {
      const at = queries.of[q] * cols + keys.of[k]
      const value = thumbnailValue(map, [q, queries.of.length], [k, keys.of.length])
      if (Math.abs(value) > Math.abs(data[at])) data[at] = value
    }
  }
  return { data, rows, cols, exact: false }
}

/** The places of a span of tokens; an empty span if none of them has a place. */
function spanOn(axis: Axis, span: Span | null): Span | null {
  if (!span) return null
  const found = Array.from(axis.of.subarray(...span)).filter((place) => place >= 0)
  return found.length > 0 ? [Math.min(...found), Math.max(...found) + 1] : [0, 0]
}
const spanOff = (axis: Axis, span: Span | null): Span | null => span && [axis.start[span[0]], axis.start[span[1]]]

/** Convert a highlight from tokens to places. */
export function highlightPlaces(queries: Axis, keys: Axis, lit: Highlight): Highlight {
  const on = (axis: Axis, tokens: readonly number[]) =>
    [...new Set(tokens.map((token) => axis.of[token]))].filter((place) => place >= 0)
  const box = lit.box && { queries: spanOn(queries, lit.box.queries), keys: spanOn(keys, lit.box.keys) }
  return { queries: on(queries, lit.queries), keys: on(keys, lit.keys), box }
}

/** Convert a rectangle from places to tokens. */
export const boxTokens = (queries: Axis, keys: Axis, box: Box): Box => ({
  queries: spanOff(queries, box.queries),
  keys: spanOff(keys, box.keys),
})

/** The first token of a place. */
export const firstToken = (axis: Axis, place: number | null) => (place === null ? null : axis.start[place])

/** All tokens of the words that contain these tokens. */
export const wholeWords = (axis: Axis, tokens: readonly number[]): number[] =>
  [...new Set(tokens.map((token) => axis.of[token]))].flatMap((place) =>
    Array.from({ length: axis.start[place + 1] - axis.start[place] }, (_, i) => axis.start[place] + i),
  )
