/** Sentences about a head: every number in the right column. */
import type { Analysis, Declaration, Run } from '../data/analysis'
import type { Axis } from '../maths/axis'
import { columnMeans, isGap, type Matrix, topIndices } from '../maths/matrix'
import { pickMap } from '../maths/sinks'
import type { UnitName } from '../maths/units'
import { duration, percent, plural, short, timeLeft } from './format'
import { isolate, placeName } from './names'

/** A label as it appears in a sentence. */
const named = (label: string, special: boolean) => isolate(special ? label : `\u201c${label}\u201d`)

/** What shares are of: through other lenses the magnitudes of their maps. */
const WEIGHT = 'all weight'
export const wholeOf = ({ name, title }: Pick<Declaration, 'name' | 'title'>) =>
  name === 'weights' ? WEIGHT : `all ${title.toLowerCase()}`

/** The mean weight on each key token, summed along an axis of tokens or words. Equal spellings are summed, as a repeated word is one thing attended to. */
export function attentionSentence(means: Float32Array, { labels, special, of }: Axis, whole = WEIGHT): string {
  const shares = new Map<string, number>()
  let total = 0
  for (let k = 0; k < means.length; k++) {
    const name = named(labels[of[k]], special[of[k]])
    shares.set(name, (shares.get(name) ?? 0) + means[k])
    total += means[k]
  }
  if (total === 0) return 'Looks at nothing: every entry of this map is 0.'
  const names = [...shares.keys()]
  const sizes = Float32Array.from(shares.values(), (share) => share / total)
  const [first, ...rest] = topIndices(sizes, 3)
  const others = rest.filter((i) => sizes[i] >= 0.02).map((i) => `${names[i]} (${percent(sizes[i])})`)
  const lead = `Looks most at ${names[first]}: ${percent(sizes[first])} of ${whole}`
  return others.length > 0 ? `${lead}, then ${others.join(' and ')}.` : `${lead}.`
}

const NEIGHBOURS: [offset: number, words: (unit: UnitName) => string][] = [
  [-1, (unit) => `the previous ${unit}`],
  [0, (unit) => `the ${unit} itself`],
  [1, (unit) => `the next ${unit}`],
]
/** More pinned tokens than these are not listed one by one. */
const FEW = 3
/** Smaller shares are not mentioned. */
const HABIT = 0.3

/** Self-attention to neighbours: the share of weight on the previous token, the token itself or the next; empty if none is large. Of a folded map, `sentences` are neighbours. */
export function habitSentence(map: Matrix, whole = WEIGHT, sentences?: readonly boolean[]): string {
  const total = totalMagnitude(map)
  const kept = sentences ? sentences.flatMap((is, place) => (is ? [place] : [])) : null
  const inner = pickMap(map, kept, kept)
  const shares = NEIGHBOURS.map(([offset, words]) => ({
    words: words(kept ? 'sentence' : 'token'),
    share: diagonal(inner, offset) / (total || 1),
  }))
  const strong = shares.filter(({ share }) => share >= HABIT).sort((a, b) => b.share - a.share)
  return strong.map(({ words, share }) => `${percent(share)} of ${whole} goes to ${words}.`).join(' ')
}

/** From the means, which are known: a sum of millions of entries would be one of the slowest steps of opening a head. */
function totalMagnitude(map: Matrix): number {
  const read = Array.from({ length: map.rows }, (_, row) => row).filter((row) => !isGap(map, row)).length
  return columnMeans(map).reduce((sum, mean) => sum + read * mean, 0)
}

function diagonal(map: Matrix, offset: number): number {
  let sum = 0
  for (let q = Math.max(0, -offset); q < Math.min(map.rows, map.cols - offset); q++) {
    const value = map.data[q * map.cols + q + offset]
    if (!Number.isNaN(value)) sum += Math.abs(value)
  }
  return sum
}

export const nullShareSentence = (share: number, map = 'this map') =>
  share < 5e-4
    ? `All of ${map} affects the output.`
    : `${percent(share)} of ${map} has no effect on the head\u2019s output.`

/** Above the map of the weights: what the other lens would show. */
export const survivalSentence = (share: number) =>
  share < 5e-4 ? 'all of it affects the output' : `${percent(share)} of it has no effect`

export const entropySentence = (nats: number, tokens: number) =>
  `Entropy ${short(nats)} nats: a query spreads over ${plurality(Math.exp(nats), tokens)}.`

/** Rounded to whole tokens from a hundred on: three digits could exceed the number of tokens. */
const plurality = (count: number, tokens: number) =>
  `about ${count < 1.05 ? 1 : count < 100 ? short(count) : Math.round(count)} of ${tokens} tokens`

/** The tokens that keep most and least of the attention to them; or those that are `asked` for, if they are few. */
export function leverageSentence(
  leverage: readonly (number | null)[],
  keys: Axis,
  asked: readonly number[] = [],
): string {
  const values = Float32Array.from(leverage, (value) => value ?? 0)
  const least = values.reduce((low, value, i) => (value < values[low] ? i : low), 0)
  const [most] = topIndices(values, 1)
  if (values[least] > 0.995) return 'All attention to every token is effective.'
  const quote = (key: number) => named(placeName(keys, keys.of[key]), keys.special[keys.of[key]])
  if (asked.length > 0 && asked.length <= FEW) {
    const [first, ...rest] = asked.map((key) => [percent(values[key]), quote(key)])
    return `${[`${first[0]} of the attention to ${first[1]} is effective`, ...rest.map(([share, name]) => `${share} of that to ${name}`)].join(', ')}.`
  }
  return `${percent(values[most])} of the attention to ${quote(most)} is effective, and ${percent(values[least])} of that to ${quote(least)}.`
}

export function attemptsSentence(attempts: number): string {
  return attempts > 1 ? `The worker stopped and was restarted; trying again (attempt ${attempts}). ` : ''
}

const STAGES: Record<string, string> = {
  sending: 'Sending the input',
  queued: 'Waiting for the worker',
  loading: 'Loading the model',
  forward: 'Running the model',
  lenses: 'Computing the maps',
  writing: 'Storing the maps',
  done: 'Fetching the maps',
}

/** Where the size of the analysis is shown otherwise: the pictures do not show what the controls say. */
export function changeSentence(what: string, tooLong: boolean, failed: boolean): string {
  if (failed) return 'Showing the previous analysis'
  const typed = what === 'Text' || what === 'Token ids'
  return `${what} changed${tooLong ? ', too long for live' : ''}. Press ${typed ? 'Enter to analyse' : 'Analyse'}`
}

/** `ran` in ms since the run began, without the time that it waited. */
export function progressSentence(
  stage: string,
  detail: string,
  position: number | null,
  fraction: number,
  ran: number,
): string {
  const doing = STAGES[stage] ?? stage
  const what = detail ? `${doing}: ${detail}` : doing
  const place = position ? `, ${plural(position, 'analysis').replace(/analysiss$/, 'analyses')} ahead` : ''
  const left = fraction > 0.05 && fraction < 1 && ran > 1500 ? (ran * (1 - fraction)) / fraction : 0
  const time = left > 1000 ? `, about ${timeLeft(left / 1000)} left` : ''
  return `${what}${place}${time}. Escape cancels.`
}

/** Shorter runs show no message, as it would only flash. */
const PATIENCE_MS = 200

/** The progress of a run; empty at first. `elapsed` in ms since the request, `ran` since it began. */
export function runSentence({ progress, attempts }: Run, elapsed: number, ran: number): string {
  if (elapsed <= PATIENCE_MS) return ''
  const { stage, detail, position, fraction } = progress
  return attemptsSentence(attempts) + progressSentence(stage, detail, position, fraction, ran)
}

/** Whether values are shares, 0 to 1 without a unit, shown as percentages. */
export const isShare = ({ range, unit }: Declaration) => range[0] === 0 && range[1] === 1 && unit === '1'

export function formatAmount(declaration: Declaration, value: number): string {
  if (isShare(declaration)) return percent(value)
  return declaration.unit === '1' ? short(value) : `${short(value)} ${declaration.unit}`
}

/** What the corner of a head says after a live analysis. */
export const MOVED = 'Among the heads whose weights changed most'

/** The title and unit of a scale: `entropy in nats`. */
export const unitOf = ({ title, unit }: Declaration): string =>
  ['', '1', title.toLowerCase()].includes(unit) ? title.toLowerCase() : `${title.toLowerCase()} in ${unit}`

/** Sentences for numbers per head; other measures are named by their title. */
export const SENTENCES: Record<string, (value: number, tokens: number) => string> = {
  entropy: entropySentence,
  absolute_entropy: (nats, tokens) =>
    `Entropy of magnitudes ${short(nats)} nats: ignoring signs, a query spreads over ${plurality(Math.exp(nats), tokens)}.`,
  participation_ratio: (value, tokens) => `By squared weights, a query attends to ${plurality(value, tokens)}.`,
  negative_share: (share) =>
    share < 5e-4
      ? 'Nothing in this map is negative.'
      : `On average ${percent(share)} of a query\u2019s magnitude is negative.`,
  special_broadcast: (share) =>
    `Special tokens contribute ${percent(share)} of this head\u2019s output to other tokens.`,
}

/** A measure without a sentence of its own: its title, its number, its unit. */
export function measureSentence(declaration: Declaration, value: number): string {
  return `${declaration.title}: ${formatAmount(declaration, value)}.`
}

/** Beside the button: the size of the analysis, and how long it took. */
export function summaryOf({ tokens, keyTokens, subset, layers, heads, totalMs }: Analysis): string {
  const keys = keyTokens === tokens ? '' : ` \u00d7 ${keyTokens.length}`
  const time = totalMs === null ? [] : [duration(totalMs)]
  const count = `${tokens.length}${keys} token${tokens.length === 1 ? '' : 's'}`
  const all = subset ? subset.layers.length * subset.heads.length : layers * heads
  return [count, plural(all, 'head'), ...time].join(' \u00b7 ')
}
