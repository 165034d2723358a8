/** Heads that were asked for: what a sentence or a query came to, and the heads that satisfy it. */

import { plural, short } from '../text/format'
import { amount, isShare } from '../text/words'
import type { Declaration, Head } from './analysis'

export interface FoundHead extends Head {
  /** What it was judged by, under the names in the query; null is no reading. */
  values: Record<string, number | string | null>
}

export interface FoundHeads {
  query: string
  /** The measure that orders them; null: by layers and heads. */
  rankedBy: string | null
  direction: 'asc' | 'desc'
  /** How many heads there are. */
  of: number
  /** The best first. */
  heads: FoundHead[]
}

export type Slot = 'where' | 'order' | 'limit' | 'lens' | 'compare' | 'measure' | 'head' | 'query' | 'key' | 'chart'

/** One thing that was understood, and the words that said so. */
export interface SearchPart {
  slot: Slot
  value: string
  said: string
}

export interface SearchView {
  query: string
  /** Needed for the query. */
  measures: string[]
  parts: SearchPart[]
  notes: string[]
}

export interface Question {
  text: string
  /** Each answers the question by another sentence. */
  choices: { label: string; ask: string }[]
}

/** Either a view or a question. */
export interface SearchAnswer {
  view: SearchView | null
  question: Question | null
}

const QUERY: readonly Slot[] = ['where', 'order', 'limit']
export const isQuery = ({ slot }: SearchPart) => QUERY.includes(slot)

/** How heads are arranged: layer by layer, as the query ranks them, or by a measure from the largest or the smallest. */
interface Sort {
  by: 'layer' | 'rank' | 'measure'
  measure: string
  direction: 'asc' | 'desc'
}

export function readSort(text: string): Sort {
  const [measure, direction] = text.split(' ')
  if (measure === '' || measure === 'layer') return { by: 'layer', measure: '', direction: 'desc' }
  if (measure === 'rank') return { by: 'rank', measure: '', direction: 'desc' }
  return { by: 'measure', measure, direction: direction === 'asc' ? 'asc' : 'desc' }
}

/** The parts as one query again, so that one of them can be changed or left out; by the measure, where heads are sorted by one. */
export function composeQuery(parts: readonly SearchPart[], sort?: Sort): string {
  const values = (slot: Slot) => parts.filter((part) => part.slot === slot).map(({ value }) => value)
  const where = values('where').map((clause) => (/ or /.test(clause) ? `(${clause})` : clause))
  const order = sort?.by === 'measure' ? [`order by ${sort.measure} ${sort.direction}`] : values('order').slice(-1)
  const limit = values('limit').map((count) => `limit ${count}`)
  return [where.join(' and '), ...order, ...limit.slice(-1)].filter(Boolean).join(' ')
}

/** The measure of a name in a query: `rank` of `rank.stable@weights`. */
export const measureOf = (name: string) => name.split(/[.@]/)[0]

/** What the value of a head says, with its unit. */
export function valueText(name: string, value: number | string | null, measures: readonly Declaration[]): string {
  if (value === null) return 'no reading'
  if (typeof value === 'string') return value
  const declared = measures.find((item) => item.name === name.split('@')[0])
  if (declared && isShare(declared)) return `${Math.round(100 * value)}\u00a0%`
  return declared ? amount(declared, value) : short(value)
}

/** `5 of 72 heads, the largest null share first`. */
export function countSentence({ heads, of, rankedBy, direction }: FoundHeads): string {
  const count = heads.length === of ? `all ${plural(of, 'head')}` : `${heads.length} of ${plural(of, 'head')}`
  if (rankedBy === null || heads.length < 2) return count
  const name = rankedBy.replaceAll('_', ' ')
  if (measureOf(rankedBy) === 'patterns') return `${count}, the clearest first`
  return `${count}, the ${direction === 'asc' ? 'smallest' : 'largest'} ${name} first`
}

/** Where no head reaches a bound: the same heads without it, the nearest first. */
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

/** What a sentence asks for besides heads, as it stands in the address. */
export function choicesOf(parts: readonly SearchPart[]): Record<string, string> {
  return Object.assign({}, ...parts.map(choiceOf))
}

function choiceOf({ slot, value }: SearchPart): Record<string, string> {
  if (slot === 'lens') return { lens: value }
  if (slot === 'compare') return { compare: 'side', with: 'lens', other: value }
  const [measure, by] = value.split(' ')
  if (slot === 'measure') return { colour: measure }
  // Where there is a figure of that measure it opens, too.
  if (slot === 'chart') return { colour: measure, figures: measureOf(measure), spread: by }
  return slot === 'head' ? { head: value, heads: '' } : {}
}

/** Whether what a part asked for is still what is chosen; what `now` says nothing of counts as chosen. */
export const isStillChosen = (part: SearchPart, now: Readonly<Record<string, string>>): boolean =>
  Object.entries(choiceOf(part)).every(([name, value]) => (now[name] ?? value) === value)

/** As it is where nothing was asked for. */
export function withoutChoice({ slot }: SearchPart): Record<string, string> {
  if (slot === 'lens') return { lens: 'weights' }
  if (slot === 'compare') return { compare: 'off' }
  if (slot === 'chart') return { colour: 'map', figures: '', spread: 'layer' }
  return slot === 'measure' ? { colour: 'map' } : {}
}

/** Tokens that a sentence speaks of: those that look, and those that are looked at. */
export function tokensOf(parts: readonly SearchPart[]): { queries: number[]; keys: number[] } {
  const numbers = (slot: Slot) =>
    parts.filter((part) => part.slot === slot).flatMap(({ value }) => value.split(' ').map(Number))
  return { queries: numbers('query'), keys: numbers('key') }
}
