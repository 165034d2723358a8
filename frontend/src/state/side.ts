/** What the open head is compared with. */
import type { Analysis, Head } from '../lib/analysis'
import { short } from '../lib/format'
import { shorten } from '../lib/labels'
import type { Catalogue } from '../lib/source'
import type { Shown } from './session.svelte'

export interface Side {
  shown: Shown
  lens: string
  head: Head
  /** What tells it from the other side. */
  name: string
}

const LONGEST = 28

/** What tells two analyses apart: their models, else their mechanisms, else their texts. */
export function namesOf(one: Analysis, other: Analysis, { models, mechanisms }: Catalogue): [string, string] {
  const model = ({ model: name }: Analysis) => models.find((item) => item.name === name)?.title ?? name
  const mechanism = ({ mechanism: name, params }: Analysis) =>
    (mechanisms.find((item) => item.name === name)?.title ?? name) + settings(params)
  const text = ({ text, textPair }: Analysis) =>
    `\u201c${shorten(one.text === other.text ? textPair : text, LONGEST)}\u201d`
  const named = [model, mechanism, text].find((of) => of(one) !== of(other)) ?? text
  return [named(one), named(other)]
}

function settings(params: Record<string, unknown>): string {
  const parts = Object.entries(params).map(
    ([name, value]) => `${name} ${typeof value === 'number' ? short(value) : value}`,
  )
  return parts.length === 0 ? '' : ` (${parts.join(', ')})`
}
