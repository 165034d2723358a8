/** Effects of heads in words. */
import type { Declaration, Predicts } from '../data/analysis'
import type { Output, Prediction, Target, WrittenLogit } from '../data/effects'
import { percent, plural, short } from './format'
import { inPhrase, isolate } from './names'

/** A token or class between quotation marks, its leading space included. */
export const quoted = (text: string): string =>
  isolate(`\u201c${text.trim() === '' ? visible(text) : text.replaceAll('\n', '\u21b5')}\u201d`)

const visible = (space: string) =>
  space.replaceAll('\n', '\u21b5').replaceAll('\t', '\u21e5').replaceAll(/\s/g, '\u2423')

/** An output by its text, if one of these predictions has it. */
export function outputText(output: Output, known: readonly Prediction[]): string {
  if (typeof output === 'string') return output
  return known.find(({ id }) => id === output)?.text ?? `#${output}`
}

/** `“ Mary” over “ John”`. */
export const targetName = (texts: readonly string[]): string => texts.map(quoted).join(' over ')

/** The same with the token at which it is predicted; null for a class of the whole input. */
export const targetPlace = (texts: readonly string[], position: number | null): string =>
  `${targetName(texts)}${position === null ? '' : ` at token ${position}`}`

export const targetTexts = (target: Target, known: readonly Prediction[]): string[] =>
  target.map((one) => outputText(one, known))

export const HEADINGS: Record<Predicts, string> = {
  'next-token': 'Next token',
  'masked-token': 'Masked token',
  class: 'Class',
}

/** Where a model predicts, after the heading. */
export function placeOfPrediction(predicts: Predicts, token: string): string {
  if (predicts === 'class') return 'of the whole input'
  return `${predicts === 'next-token' ? 'after' : 'in place of'} ${token}`
}

/** A number of logits with its sign. */
export const logits = (value: number): string => `${value > 0 ? '+' : ''}${short(value)} logits`

/** What becomes of the target without heads that have this effect on it. */
export const fallSentence = (name: string, effect: number): string =>
  effect === 0
    ? `${name} stays as it is`
    : `${name} ${effect > 0 ? 'falls' : 'rises'} by ${short(Math.abs(effect))} logits`

/** The tokens that a head raises and lowers most. */
export function writesSentence(logits: readonly WrittenLogit[]): string {
  const list = (those: readonly WrittenLogit[]) =>
    those.map(({ text, logit }) => `${quoted(text)} (${logit > 0 ? '+' : ''}${short(logit)})`).join(', ')
  const [raised, lowered] = [logits.filter(({ logit }) => logit > 0), logits.filter(({ logit }) => logit < 0).reverse()]
  const parts = [raised, lowered].map((those, at) =>
    those.length > 0 ? `${['raises', 'lowers'][at]} most ${list(those)}` : '',
  )
  const said = parts.filter(Boolean).join('; ')
  return said && `${said.replace(/^./, (letter) => letter.toUpperCase())}.`
}

/** What one head carries of the difference of the target between two texts. */
export function patchSentence(
  what: string,
  direction: string,
  effect: number,
  value: number,
  baseline: number,
): string {
  const whole = value - baseline
  const share = whole === 0 ? '' : ` (${percent(effect / whole)})`
  return `${what} ${direction === 'noise' ? 'destroys' : 'restores'} ${short(effect)} of the ${short(whole)} logits between the two texts${share}.`
}

/** Why nothing is predicted. */
export const PIN = 'Pin a token to see what the model predicts in its place, or mask one.'
export const NOT_SOFTMAX =
  'Predictions are explained under softmax only. Choose the mechanism softmax and analyse again.'

export const NOT_SOFTMAX_SCORE =
  'Scores are explained under softmax only. Choose the mechanism softmax and analyse again.'

/** How many percent a prediction had before. */
export function beforeSentence({ id }: Prediction, before: readonly Prediction[]): string {
  const found = before.find((one) => one.id === id)
  return found ? `was ${percent(found.probability)}` : `was below ${percent(before.at(-1)?.probability ?? 0)}`
}

/** What became of a prediction when heads were switched off. */
export function changeOfFirst(before: readonly Prediction[], after: readonly Prediction[]): string {
  const [first, now] = [before[0], after[0]]
  if (!first || !now) return ''
  if (first.id === now.id)
    return `${quoted(now.text)} stays first: ${percent(first.probability)} before, ${percent(now.probability)} now.`
  return `${quoted(now.text)} instead of ${quoted(first.text)}.`
}

/** The largest effect counts as first, whatever its sign. */
export function rankSentence(place: { rank: number; count: number } | undefined): string {
  if (!place) return ''
  return place.rank === 1
    ? `, the largest of ${plural(place.count, 'head')}`
    : `, number ${place.rank} of ${place.count} heads`
}

/** How alike two methods rank the heads. */
export const agreementSentence = (method: Declaration, correlation: number): string =>
  `rank correlation with ${inPhrase(method.title)} ${short(correlation)}`

/** What a method computes, and what that is not. */
export const explain = (method: Declaration | undefined): string => (method ? `${method.doc} ${method.not}` : '')
