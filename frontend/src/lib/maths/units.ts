/** What a row or column of a map stands for: a token, a word, or a sentence. */
import type { Analysis, Token } from '../data/analysis'
import { plural } from '../text/format'
import { tokenLabel } from '../text/labels'
import { sentencesOf } from '../text/segmentation'
import { type Axes, type Axis, isSpecial, membersOf, wordAxis } from './axis'
import { outlined } from './axis-names'
import { overviewPool } from './details'
import { type Window, windowAt } from './raster'

export const UNITS = ['pieces', 'words', 'sentences'] as const
export type Unit = (typeof UNITS)[number]
export type UnitName = 'token' | 'word' | 'sentence'
export const UNIT_NAMES: Record<Unit, UnitName> = { pieces: 'token', words: 'word', sentences: 'sentence' }

type Texts = Pick<Analysis, 'tokens' | 'keyTokens' | 'texts'>

/** Sentences by which a map can be folded: two or more, along queries or keys. */
const hasSentences = ({ tokens, keyTokens, texts }: Texts) =>
  [tokens, keyTokens].some((side) => sentencesOf(side, texts).labels.length > 1)

const hasPieces = ({ tokens, keyTokens }: Texts) =>
  [tokens, keyTokens].some((side) => wordAxis(side).labels.length < side.length)

/** Long maps, of which the page has parts, are not folded to words. */
const isWhole = ({ tokens, keyTokens }: Texts) => overviewPool(tokens.length, keyTokens.length) === 1

/** Sentences by which a long map is folded where it is kept: so many fit into the address of a request. */
const MOST_SENTENCES = 1000

/** Whether the tokens of every sentence follow one another. */
function inOrder(of: Int32Array): boolean {
  let last = -1
  for (const [i, sentence] of of.entries()) {
    if (sentence < 0 || sentence === of[i - 1]) continue
    if (sentence <= last) return false
    last = sentence
  }
  return true
}

function canFold(of: Texts): boolean {
  if (isWhole(of)) return hasSentences(of)
  const sides = [of.tokens, of.keyTokens].map((side) => sentencesOf(side, of.texts))
  const fits = sides.every((side) => side.labels.length <= MOST_SENTENCES && inOrder(side.of))
  return fits && hasSentences(of)
}

/** The units that differ from each other for this text. */
export const unitsOf = (of: Texts): Unit[] => [
  'pieces',
  ...(isWhole(of) && hasPieces(of) ? (['words'] as const) : []),
  ...(canFold(of) ? (['sentences'] as const) : []),
]

/** The unit that is shown: a text of one sentence stays unfolded, and so do the words of a long one. */
export const shownUnit = (of: Texts, wanted: Unit): Unit =>
  (wanted === 'sentences' && !canFold(of)) || (wanted === 'words' && !isWhole(of)) ? 'pieces' : wanted

/** Tokens of a sentence share a place. Tokens outside of sentences, and those that are left out (`left`), have places of their own. */
export function sentenceAxis(tokens: readonly Token[], texts: readonly string[], left: readonly boolean[]): Axis {
  const { of: sentence, labels: names } = sentencesOf(tokens, texts)
  const placeOf = new Map<number, number>()
  const of = new Int32Array(tokens.length)
  const [starts, sentences]: [number[], boolean[]] = [[], []]
  for (const i of tokens.keys()) {
    const inside = sentence[i] >= 0 && !left[i]
    const known = inside ? placeOf.get(sentence[i]) : undefined
    of[i] = known ?? starts.length
    if (known !== undefined) continue
    if (inside) placeOf.set(sentence[i], starts.length)
    starts.push(i)
    sentences.push(inside)
  }
  return {
    labels: starts.map((i, place) => (sentences[place] ? names[sentence[i]] : tokenLabel(tokens[i]))),
    special: starts.map((i, place) => !sentences[place] && isSpecial(tokens[i])),
    start: Int32Array.from([...starts, tokens.length]),
    of,
    sentences,
  }
}

/** The axes of the maps of an analysis. `left`: tokens that are left out, or grey, and so belong to no sentence. */
export function unitAxes(
  { tokens, keyTokens, texts }: Texts,
  unit: Unit,
  left: { queries: readonly boolean[]; keys: readonly boolean[] },
): Axes {
  const axis = (side: readonly Token[], without: readonly boolean[]) =>
    unit === 'sentences' ? sentenceAxis(side, texts, without) : outlined(unit, side, texts)

  const rows = axis(tokens, left.queries)
  return [rows, keyTokens === tokens ? rows : axis(keyTokens, left.keys)]
}

/** How many places an axis has, such as `12 sentences and 2 single tokens`. `side`: `query ` or `key `. */
export function countedPlaces({ labels, sentences }: Axis, unit: UnitName, side = ''): string {
  const places = labels.length
  if (!sentences) return plural(places, side + unit)
  const folded = sentences.filter(Boolean).length
  const others = places - folded
  return plural(folded, side + unit) + (others > 0 ? ` and ${plural(others, 'single token')}` : '')
}

/** The window of a map of tokens that shows one cell of a folded map. */
export function cellWindow(folded: Axes, tokens: Axes, query: number, key: number): Window {
  const spans = [query, key].map((place, side) => {
    const [axis, drawn] = [folded[side], tokens[side]]
    const places = membersOf(axis)
      [place].map((token) => drawn.of[token])
      .filter((at) => at >= 0)
    const count = drawn.labels.length
    return places.length > 0 ? [Math.min(...places) / count, (Math.max(...places) + 1) / count] : [0, 1]
  })
  const [[top, bottom], [left, right]] = spans
  const size = Math.max(bottom - top, right - left)
  const cells = Math.max(...tokens.map(({ labels }) => labels.length))
  return windowAt((left + right - size) / 2, (top + bottom - size) / 2, size, cells)
}
