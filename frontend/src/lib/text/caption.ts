/** Captions of pictures: the model, mechanism and lens, the text, and warnings. */
import { type Analysis, type Head, headName, type Token } from '../data/analysis'
import type { Matrix } from '../maths/matrix'
import type { Unit } from '../maths/units'
import { plural, short } from './format'
import { maskSentence } from './mask'
import { writeMessages } from './messages'
import { isolate } from './names'

const LONGEST_QUOTE = 160

interface CaptionContext {
  analysis: Analysis
  /** Such as `head 4.5`, or `all heads`. */
  name: string
  model: string
  lenses: readonly { name: string; title: string }[]
  /** What a row and a column of the map stand for. */
  unit?: Unit
  /** The head on screen, which may be merged from several. */
  head?: Head | undefined
  /** What it is compared with. */
  second?: { analysis: Analysis; head: Head; model: string } | undefined
}

const FOLDED: Record<Unit, string[]> = {
  pieces: [],
  words: ['Folded to words, keys summed, queries averaged.'],
  sentences: ['Folded to sentences, keys summed, queries averaged.'],
}

export function caption({ analysis, name, model, lenses, unit = 'pieces', head, second }: CaptionContext): string {
  const { tokens, keyTokens, mechanism } = analysis
  const count =
    keyTokens === tokens ? plural(tokens.length, 'token') : `${tokens.length} query and ${keyTokens.length} key tokens`
  const words = wordsOf(analysis)
  const read = lenses.map(({ title }) => title.toLowerCase()).join(' and ')
  const through =
    lenses.length === 0
      ? ''
      : `; ${lenses.length === 1 ? 'lens' : 'lenses'}: ${read}${options(lensParams(analysis, lenses))}`
  const sentences = [
    `${capital(name)} of ${model}, mechanism ${mechanism}${options(analysis.params)}${through}.`,
    `${capital(count)}${words ? `: ${words}` : ''}.`,
    ...[head, second?.head].filter((one) => one !== undefined).flatMap(mergedSentence),
    ...(second && second.analysis.id !== analysis.id ? [besideSentence(second)] : []),
    ...FOLDED[unit],
    ...[cutSentence(analysis)].filter(Boolean),
    ...[maskSentence(analysis)].filter(Boolean).map((said) => `${capital(said)}.`),
    ...warningsOf(
      analysis,
      lenses.map((lens) => lens.name),
    ),
  ]
  return sentences.join(' ')
}

function wordsOf({ messages, text, textPair }: Analysis): string {
  const written = messages ? [writeMessages(messages)] : [text, textPair]
  return written.filter(Boolean).map(quoted).join(' and ')
}

const mergedSentence = ({ among }: Head): string[] =>
  among
    ? [`${among.how === 'mean' ? 'Mean' : 'Largest entries'} of heads ${among.heads.map(headName).join(', ')}.`]
    : []

/** What the other map is of. */
function besideSentence({ analysis, model }: { analysis: Analysis; model: string }): string {
  const { mechanism, params, id } = analysis
  const words = wordsOf(analysis)
  return `Compared with ${model}, mechanism ${mechanism}${options(params)}${words ? `, on ${words}` : ''} (analysis ${id.slice(0, 8)}).`
}

/** The source of the numbers. */
export const sourceOf = ({ id }: Analysis) => `Headscope, analysis ${id.slice(0, 8)}.`

/** How precise the numbers of a map are. */
export function precisionOf({ exact, pool, error }: Matrix): string {
  if (pool) return 'overview (largest entry per cell), exact when zoomed in'
  if (!exact) return 'thumbnail (largest entry per pixel)'
  return error ? `rounded to within ${short(error)}` : 'exact (float32)'
}

/** Warnings about these lenses and about the analysis as a whole, without duplicates. */
export function warningsOf({ warnings }: Analysis, lenses: readonly string[]): string[] {
  const said = warnings.filter(({ lens }) => lens === null || lenses.includes(lens))
  return [...new Set(said.map(({ message }) => message))]
}

/** Empty if the model read the whole text. */
export function cutSentence({ tokens, keyTokens, text, textPair, picture }: Analysis): string {
  // A text with an image is never truncated, and may have a word for the image that is no part of what is read.
  if (picture) return ''
  // A masked token is special, and has the place of its word.
  const read = (segment: number) =>
    [...tokens, ...keyTokens].filter((token) => token.segment === segment && token.end > token.start)
  const left = [text, textPair].map((whole, segment) => whole.trimEnd().length - end(read(segment)))
  // Offsets count characters and lengths count UTF-16 units, so only a missing whole word counts as a cut.
  const cut = left.some(
    (missing, segment) =>
      read(segment).length > 0 && missing > 1 && goesOn([text, textPair][segment], end(read(segment))),
  )
  return cut ? `Truncated to ${plural(tokens.length, 'token')}; the text is longer.` : ''
}

const end = (tokens: readonly Token[]) => tokens.reduce((last, token) => Math.max(last, token.end), 0)
const goesOn = (text: string, from: number) => /[\p{L}\p{N}]/u.test(Array.from(text).slice(from).join(''))

function quoted(text: string): string {
  const letters = Array.from(text.replace(/\s+/g, ' ').trim())
  return isolate(
    `\u201c${letters.length <= LONGEST_QUOTE ? letters.join('') : `${letters.slice(0, LONGEST_QUOTE).join('')}\u2026`}\u201d`,
  )
}

const lensParams = ({ maps }: Analysis, lenses: CaptionContext['lenses']) =>
  Object.assign({}, ...lenses.map(({ name }) => maps[name]?.params ?? {}))

function options(params: Record<string, unknown>): string {
  const parts = Object.entries(params).map(([name, value]) => `${name} ${JSON.stringify(value)}`)
  return parts.length > 0 ? ` (${parts.join(', ')})` : ''
}

export const lowerFirst = (text: string) => text.replace(/^./, (letter) => letter.toLowerCase())
const capital = (text: string) => text.replace(/^./, (letter) => letter.toUpperCase())
