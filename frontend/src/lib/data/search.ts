/** Searches for heads: how a sentence or a query was understood, and the heads that match. */

import { plural, short } from '../text/format'
import { formatAmount } from '../text/words'
import type { Declaration, Head } from './analysis'

export interface FoundHead extends Head {
  /** The values it was matched by, under their names in the query; null is no reading. */
  values: Record<string, number | string | null>
}

export interface FoundHeads {
  query: string
  /** The measure that heads are sorted by; null: by layer and head. */
  rankedBy: string | null
  direction: 'asc' | 'desc'
  /** The number of all heads. */
  of: number
  /** The best match first. */
  heads: FoundHead[]
}

export type Slot =
  | 'where'
  | 'order'
  | 'limit'
  | 'lens'
  | 'compare'
  | 'difference'
  | 'measure'
  | 'head'
  | 'pair'
  | 'edge'
  | 'query'
  | 'key'
  | 'chart'
  | 'special'
  | 'explain'
  | 'count'
  | 'page'

/** A part of a query, and the words of the sentence that it comes from. */
export interface SearchPart {
  slot: Slot
  value: string
  said: string
}

export interface SearchView {
  query: string
  /** Measures that the query needs. */
  measures: string[]
  parts: SearchPart[]
  notes: string[]
}

export interface Question {
  text: string
  /** Each choice answers the question by another sentence. */
  choices: { label: string; ask: string }[]
}

/** Either a view or a question, never both. */
export interface SearchAnswer {
  view: SearchView | null
  question: Question | null
}

const QUERY: readonly Slot[] = ['where', 'order', 'limit']
export const isQuery = ({ slot }: SearchPart) => QUERY.includes(slot)

/** Done once, or answered in words: not a part that can be changed. */
const DONE: readonly Slot[] = ['edge', 'explain', 'count', 'page']
export const isChip = ({ slot, value }: SearchPart) => !DONE.includes(slot) && value !== BEST
/** Instead of a head: the first that is found. */
export const BEST = 'best'

/** The order of heads: by layer, by rank in the query, by the effects on screen, or by a measure. */
interface Sort {
  by: 'layer' | 'rank' | 'effect' | 'measure'
  measure: string
  direction: 'asc' | 'desc'
}

export function readSort(text: string): Sort {
  const [measure, direction] = text.split(' ')
  if (measure === '' || measure === 'layer') return { by: 'layer', measure: '', direction: 'desc' }
  if (measure === 'rank') return { by: 'rank', measure: '', direction: 'desc' }
  const by = measure === 'effect' ? measure : 'measure'
  return { by, measure, direction: direction === 'asc' ? 'asc' : 'desc' }
}

/** Heads by their numbers; those without one come last. */
export function sortHeads(
  heads: readonly Head[],
  values: readonly (readonly (number | null)[])[],
  direction: Sort['direction'],
): Head[] {
  const sign = direction === 'asc' ? 1 : -1
  const key = ({ layer, head }: Head) => {
    const value = values[layer]?.[head] ?? null
    return value === null ? Number.POSITIVE_INFINITY : sign * value
  }
  return [...heads].sort((a, b) => (key(a) === key(b) ? 0 : key(a) - key(b)))
}

/** Compose parts to a query, so that one of them can be changed or removed; `sort` by a measure overrides their order. */
export function composeQuery(parts: readonly SearchPart[], sort?: Sort): string {
  const values = (slot: Slot) => parts.filter((part) => part.slot === slot).map(({ value }) => value)
  const where = values('where').map((clause) => (/ or /.test(clause) ? `(${clause})` : clause))
  const order = sort?.by === 'measure' ? [`order by ${sort.measure} ${sort.direction}`] : values('order').slice(-1)
  const limit = values('limit').map((count) => `limit ${count}`)
  return [where.join(' and '), ...order, ...limit.slice(-1)].filter(Boolean).join(' ')
}

/** The measure of a name in a query: `rank` of `rank.stable@weights`. */
export const measureOf = (name: string) => name.split(/[.@]/)[0]

/** The value of a head, with its unit. */
export function valueText(name: string, value: number | string | null, measures: readonly Declaration[]): string {
  if (value === null) return 'no reading'
  if (typeof value === 'string') return value
  const declared = measures.find((item) => item.name === name.split('@')[0])
  return declared ? formatAmount(declared, value) : short(value)
}

/** What heads are that satisfy one condition, such as `sinks`. */
function kindOf(parts: readonly SearchPart[]): string {
  const [condition, ...more] = parts.filter(({ slot }) => slot === 'where').map(({ value }) => value)
  if (more.length > 0 || condition === undefined) return ''
  if (condition === 'sink.is_sink = 1') return 'sinks'
  return /^[a-z+]+$/.test(condition) ? condition : ''
}

/** `5 of 72 heads, largest null share first`; `45 of 72 heads are sinks`. */
export function countSentence(
  { heads, of, rankedBy, direction }: FoundHeads,
  parts: readonly SearchPart[] = [],
): string {
  const kind = kindOf(parts)
  if (kind)
    return `${heads.length} of ${plural(of, 'head')} ${heads.length === 1 ? `is ${kind.replace(/^sinks$/, 'a sink')}` : `are ${kind}`}`
  const count = heads.length === of ? `all ${plural(of, 'head')}` : `${heads.length} of ${plural(of, 'head')}`
  if (rankedBy === null || heads.length < 2) return count
  const name = rankedBy.replaceAll('_', ' ')
  if (measureOf(rankedBy) === 'patterns') return `${count}, clearest first`
  return `${count}, ${direction === 'asc' ? 'smallest' : 'largest'} ${name} first`
}

/** A query without the bound that no head reaches, sorted by closeness to it. */
export function relaxQuery(parts: readonly SearchPart[]): { measure: string; query: string } | undefined {
  const bound = /^([a-z_]+(?:\.\w+)?(?:@[\w-]+)?) (>=?|<=?) [\d.]+%?$/
  const at = parts.findLastIndex(
    ({ slot, value }) => slot === 'where' && bound.test(value) && !/^(layer|head) /.test(value),
  )
  if (at < 0) return undefined
  const [, measure, sign] = bound.exec(parts[at].value) ?? []
  const order = `order by ${measure} ${sign.startsWith('>') ? 'desc' : 'asc'}`
  const rest = parts.filter((part, i) => i !== at && isQuery(part) && part.slot !== 'order')
  return { measure, query: composeQuery([...rest, { slot: 'order', value: order, said: order }]) }
}

/** The fields of the address that a sentence sets, besides the search for heads. */
export function choicesOf(parts: readonly SearchPart[]): Record<string, string> {
  return Object.assign({}, ...parts.map(choiceOf))
}

function choiceOf({ slot, value }: SearchPart): Record<string, string> {
  if (slot === 'lens') return { lens: value }
  if (slot === 'compare') return { compare: 'side', with: 'lens', other: value }
  if (slot === 'difference') return { compare: 'difference', with: 'lens', other: value }
  if (slot === 'pair') return { compare: 'side', with: 'head', than: value }
  if (slot === 'special') return { special: value === 'hide' || value === 'mark' ? value : 'show' }
  const [measure, by] = value.split(' ')
  if (slot === 'measure') return { colour: measure }
  // Also opens a figure of the measure, if there is one.
  if (slot === 'chart') return { colour: measure, figures: measureOf(measure), spread: by }
  return slot === 'head' && value !== BEST ? { head: value, heads: '' } : {}
}

/** Whether the fields that a part has set still have its values; fields missing in `now` count as unchanged. */
export const isStillChosen = (part: SearchPart, now: Readonly<Record<string, string>>): boolean =>
  Object.entries(choiceOf(part)).every(([name, value]) => (now[name] ?? value) === value)

/** The fields that a part has set, reset. */
export function withoutChoice({ slot }: SearchPart): Record<string, string> {
  if (slot === 'lens') return { lens: 'weights' }
  if (slot === 'compare' || slot === 'difference' || slot === 'pair') return { compare: 'off' }
  if (slot === 'special') return { special: 'show' }
  if (slot === 'chart') return { colour: 'map', figures: '', spread: 'layer' }
  return slot === 'measure' ? { colour: 'map' } : {}
}

/** Tokens named in a sentence: queries and keys. */
export function tokensOf(parts: readonly SearchPart[]): { queries: number[]; keys: number[] } {
  const numbers = (slot: Slot) =>
    parts.filter((part) => part.slot === slot).flatMap(({ value }) => value.split(' ').map(Number))
  return { queries: numbers('query'), keys: numbers('key') }
}
