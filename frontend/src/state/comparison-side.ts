/** One side of a comparison: what the open head is compared with. */
import type { Analysis, Head } from '../lib/data/analysis'
import type { Catalogue } from '../lib/data/source'
import { short } from '../lib/text/format'
import { shorten } from '../lib/text/labels'
import { isolate } from '../lib/text/names'
import type { OpenAnalysis } from './open-analysis'

export interface ComparisonSide {
  shown: OpenAnalysis
  lens: string
  head: Head
  /** What distinguishes it from the other side. */
  name: string
  /** The field that chooses its head, if it may differ from the open one: in another model, or in the same analysis. */
  picks?: 'twin' | 'than'
}

const LONGEST = 22

/** What distinguishes two analyses: their models, otherwise their mechanisms, otherwise their texts; and which one is masked. */
export function nameSides(one: Analysis, other: Analysis, { models, mechanisms }: Catalogue): [string, string] {
  const title = ({ model: name }: Analysis) => models.find((item) => item.name === name)?.title ?? name
  const model = (of: Analysis) => apart(title(of), title(of === one ? other : one))
  const mechanism = ({ mechanism: name, params }: Analysis) =>
    (mechanisms.find((item) => item.name === name)?.title ?? name) + settings(params)
  const read = ({ text, textPair }: Analysis) => (one.text === other.text ? textPair : text)
  const from = difference(read(one), read(other), LONGEST)
  const text = (of: Analysis) =>
    isolate(`\u201c${from > 0 ? '\u2026' : ''}${wholeWords(read(of).slice(from).trim())}\u201d`)
  const masked = ({ mask }: Analysis) => (mask.length > 0 ? 'masked' : 'unmasked')
  const tell = masked(one) !== masked(other)
  const named = [model, mechanism, text].find((of) => of(one) !== of(other))
  if (tell && !named) return [`${masked(one)} text`, `${masked(other)} text`]
  const name = (of: Analysis) => (named ?? text)(of) + (tell ? `, ${masked(of)}` : '')
  return [name(one), name(other)]
}

/** The part after the colon of titles that are equal before it: `Hopfield` of `Twin BERT: Hopfield` beside `Twin BERT: softmax`. */
function apart(title: string, beside: string): string {
  const from = title.lastIndexOf(': ') + 2
  if (from < 2 || title === beside || title.slice(0, from) !== beside.slice(0, from)) return title
  return title.charAt(from).toUpperCase() + title.slice(from + 1)
}

/** As many words as fit, or the beginning of a word that is too long. */
function wholeWords(text: string): string {
  if (text.length <= LONGEST) return text
  const end = text.lastIndexOf(' ', LONGEST)
  return end > 0 ? `${text.slice(0, end)} \u2026` : shorten(text, LONGEST)
}

/** Where the word begins in which two texts begin to differ, or the previous word if both fit into `most` characters. */
function difference(one: string, other: string, most: number): number {
  let end = 0
  while (end < one.length && one[end] === other[end]) end++
  const before = one.slice(0, end)
  const word = before.lastIndexOf(' ') + 1
  const previous = before.slice(0, Math.max(0, word - 1)).lastIndexOf(' ') + 1
  const ends = [one, other].map((text) => (text.indexOf(' ', word) < 0 ? text.length : text.indexOf(' ', word)))
  return Math.max(...ends) - previous <= most ? previous : word
}

function settings(params: Record<string, unknown>): string {
  const parts = Object.entries(params).map(
    ([name, value]) => `${name} ${typeof value === 'number' ? short(value) : value}`,
  )
  return parts.length === 0 ? '' : ` (${parts.join(', ')})`
}
