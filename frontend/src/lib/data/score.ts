/** Scores of a query before the softmax: what they are made of, and what the parts of the model below bring to one of them. */
import type { Head } from './analysis'

export interface ScoreRow {
  query: number
  key: number
  /** By name, one number per key in logits, null where the query may not attend: terms that sum to `score`; and `weight`, a share. */
  terms: Readonly<Record<string, readonly (number | null)[]>>
  /** What parts of the model bring through the query times others through the key: the largest, if they were asked for. All pairs sum to content and rotation. */
  pairs?: readonly ScorePair[] | null
}

interface ScorePair {
  query: string
  key: string
  value: number
}

/** The terms of a score that this model has. */
export const TERMS = ['content', 'rotation', 'cap', 'position'] as const

export const termsOf = ({ terms }: ScoreRow): string[] => TERMS.filter((name) => name in terms)

/** The keys with the largest weights, largest first, and that of the score if it is not among them. */
export function largestKeys({ key, terms }: ScoreRow, count: number): number[] {
  const keys = terms.weight.flatMap((weight, at) => (weight === null ? [] : [at]))
  const first = keys.sort((a, b) => (terms.weight[b] ?? 0) - (terms.weight[a] ?? 0)).slice(0, count)
  return first.includes(key) ? first : [...first.slice(0, -1), key]
}

/** A part of the model below a head, and what it brings to the score in logits. */
export interface ScorePart {
  name: string
  value: number
  /** It is a head of the same kind of attention. */
  head?: Head
}

const NAMES: Readonly<Record<string, string>> = { bias: 'biases', cap: 'soft cap', position: 'added by position' }

/** What all pairs of parts sum to. */
export const pairsTotal = ({ key, terms }: ScoreRow): number =>
  ['content', 'rotation'].reduce((sum, term) => sum + (terms[term]?.[key] ?? 0), 0)

const partName = (name: string) => NAMES[name] ?? name.replace(/^mlp /, 'feed-forward ')

/** The pairs that were asked for, named by their parts. */
export const scorePairs = ({ pairs }: ScoreRow): ScorePart[] =>
  (pairs ?? []).map(({ query, key, value }) => ({ name: `${partName(query)} \u00d7 ${partName(key)}`, value }))

/** All parts that bring something to the score, largest first, whatever the sign. */
export function scoreParts(
  values: readonly (readonly (number | null)[])[],
  parts: Readonly<Record<string, readonly number[]>>,
): ScorePart[] {
  const heads = values.flatMap((row, layer) =>
    row.map((value, head) => ({ name: `${layer}.${head}`, value: value ?? 0, head: { layer, head } })),
  )
  const others = Object.entries(parts).flatMap(([name, numbers]) =>
    name === 'mlp'
      ? numbers.map((value, layer) => ({ name: `feed-forward ${layer}`, value }))
      : [{ name: NAMES[name] ?? name, value: numbers.reduce((sum, value) => sum + value, 0) }],
  )
  return [...heads, ...others].filter(({ value }) => value !== 0).sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
}
