/** Axes of a map: tokens, words, or sentences. */
import type { Token } from '../data/analysis'
import { tokenLabel } from '../text/labels'
import type { Box, Highlight, Span } from './highlight'
import { isGap, type Matrix, rounding, sumError, thumbnailValue } from './matrix'

export interface Axis {
  labels: readonly string[]
  /** Whether a place is a special token, such as [CLS]. */
  special: readonly boolean[]
  /** The first token of each place, and an end. */
  start: Int32Array
  /** The place of each token; -1 without one. */
  of: Int32Array
  /** Which places are sentences, on an axis of sentences. Queries without a reading do not count in their means; a word with one has no reading. */
  sentences?: readonly boolean[]
  /** Names for where not every place has room for its label. */
  outline?: Outline
}

/** What the places of an axis are called where not all of them are named. */
export interface Outline {
  names: readonly string[]
  /** Places of a higher rank are named first: 2 begins a sentence, 1 a word. */
  rank: Uint8Array
}

/** Of a map whose queries and keys are the same tokens, both are one object. */
export type Axes = readonly [queries: Axis, keys: Axis]

const known = new WeakMap<readonly Token[], Axis>()

export function tokenAxis(tokens: readonly Token[]): Axis {
  const found = known.get(tokens) ?? makeTokenAxis(tokens)
  known.set(tokens, found)
  return found
}

function makeTokenAxis(tokens: readonly Token[]): Axis {
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

export const isSpecial = ({ kind }: Token) => kind === 'special'

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

const members = new WeakMap<Axis, readonly (readonly number[])[]>()

/** The tokens of each place. */
export function membersOf(axis: Axis): readonly (readonly number[])[] {
  const known = members.get(axis)
  if (known) return known
  const found: number[][] = axis.labels.map(() => [])
  for (const [token, place] of axis.of.entries()) if (place >= 0) found[place].push(token)
  members.set(axis, found)
  return found
}

/** Reduce a map of tokens to words or sentences: the sum over keys, the mean over queries. A thumbnail keeps the largest entry. */
export function groupMap(map: Matrix, queries: Axis, keys: Axis): Matrix {
  return map.exact ? grouped(map, queries, keys) : regridded(map, queries, keys)
}

function grouped(map: Matrix, queries: Axis, keys: Axis): Matrix {
  const [rows, cols] = [countPlaces(queries), countPlaces(keys)]
  const data = new Float32Array(rows * cols)
  const row = new Float64Array(cols)
  for (const [v, tokens] of membersOf(queries).entries()) {
    const read = queries.sentences ? tokens.filter((q) => !isGap(map, q)) : tokens
    row.fill(read.length > 0 ? 0 : Number.NaN)
    for (const q of read) {
      for (let k = 0; k < map.cols; k++) if (keys.of[k] >= 0) row[keys.of[k]] += map.data[q * map.cols + k]
    }
    for (let w = 0; w < cols; w++) data[v * cols + w] = row[w] / read.length
  }
  const pieces = membersOf(keys).reduce((most, tokens) => Math.max(most, tokens.length), 1)
  return { data, rows, cols, exact: true, ...rounding(sumError(map, pieces)) }
}

/** Values of key tokens, such as a row of a map, summed over the keys of each place. */
export const placeSums = (axis: Axis, values: ArrayLike<number>): Float32Array =>
  hasSinglePlaces(axis)
    ? Float32Array.from(values)
    : Float32Array.from(membersOf(axis), (tokens) => tokens.reduce((sum, token) => sum + values[token], 0))

/** Whether every token has a place of its own; there may be tens of thousands. */
const hasSinglePlaces = ({ of, labels }: Axis) => of.length === labels.length

/** Values of tokens averaged over those of each place that have a reading; NaN if none has. */
export const placeMeans = (axis: Axis, values: ArrayLike<number>): Float32Array =>
  Float32Array.from(membersOf(axis), (tokens) => {
    const read = tokens.filter((token) => !Number.isNaN(values[token]))
    return read.reduce((sum, token) => sum + values[token], 0) / read.length
  })

/** Resample a thumbnail to places, as a preview of the exact map. */
function regridded(map: Matrix, queries: Axis, keys: Axis): Matrix {
  const [rows, cols] = [countPlaces(queries), countPlaces(keys)]
  const data = new Float32Array(rows * cols)
  for (let q = 0; q < queries.of.length; q++) {
    for (let k = 0; k < keys.of.length; k++) {
      if (queries.of[q] < 0 || keys.of[k] < 0) continue
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
/** Up to the last token of the last place before one of another place, as a sentence can go on after a token that is left out of it. */
function spanOff({ of, start }: Axis, span: Span | null): Span | null {
  if (!span || span[0] === span[1]) return span && [start[span[0]], start[span[0]]]
  const last = span[1] - 1
  let end = start[last]
  while (end < of.length && of[end] === last) end += 1
  return [start[span[0]], end]
}

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

/** All tokens of the places of these tokens. */
export const wholePlaces = (axis: Axis, tokens: readonly number[]): number[] =>
  [...new Set(tokens.map((token) => axis.of[token]))].flatMap((place) => membersOf(axis)[place] ?? [])
