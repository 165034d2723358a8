/** Heads over a data set: the query that ranks them, their numbers as a grid, and links to the analysis of a text. */

import { encodeFragment } from '../net/fragment'
import { type Head, headName, type Subset } from './analysis'
import { type FoundHeads, readSort } from './search'
import { groupDigits, type Row, type Study, type StudyNumber, type Variant } from './studies'
import { headsOf, scatter, subsetOf } from './subset'

/** A query sorted by a measure, unless it already has an order. */
export function rankQuery(find: string, measure: string, direction: 'asc' | 'desc'): string {
  if (measure === '' || /\border by\b/i.test(find)) return find
  return `${find} order by ${measure} ${direction}`.trim()
}

/** Values of the heads found, [L][H] by position; null for a head that was not found or has no reading. */
export function toGrid(found: FoundHeads, name: string, { layers, heads }: Variant): (number | null)[][] {
  const values = new Map(found.heads.map((head) => [headName(head), head.values[name]]))
  return layers.map((layer) =>
    heads.map((head) => {
      const value = values.get(headName({ layer, head }))
      return typeof value === 'number' ? value : null
    }),
  )
}

interface StudyGrid {
  /** How many rows and columns there are; and which, unless they are all layers and heads. */
  cells: { layers: number; heads: number; subset?: Subset; order?: Head[] }
  /** [L][H] by layer and head. */
  values: (number | null)[][]
}

/** A grid of values [L][H] by position, under the numbers of the layers and heads: not every layer of a model may attend. */
export function numbered(values: (number | null)[][], { layers, heads }: Variant): StudyGrid {
  const [cells, subset] = [{ layers: layers.length, heads: heads.length }, subsetOf(layers, heads)]
  if (!subset) return { cells, values }
  return { cells: { ...cells, subset, order: headsOf(subset, false) }, values: scatter(values, subset, null) }
}

/** Second minus first, head by head; null if either has no reading. */
export const difference = (one: (number | null)[][], two: (number | null)[][]): (number | null)[][] =>
  one.map((row, layer) =>
    row.map((value, head) => {
      const other = two[layer]?.[head] ?? null
      return value === null || other === null ? null : other - value
    }),
  )

/** Heads of a grid by descending magnitude. */
export function rankCells(grid: (number | null)[][], { layers, heads }: Variant): (Head & { value: number })[] {
  const found = grid.flatMap((row, i) =>
    row.flatMap((value, j) => (value === null ? [] : [{ layer: layers[i], head: heads[j], value }])),
  )
  return found.sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
}

/** The number of a head by its name; without a column the first of the measure. */
export const findNumber = (numbers: readonly StudyNumber[], name: string): StudyNumber | undefined => {
  const [measure, column = null] = readSort(name).measure.split('.')
  return (
    numbers.find((one) => one.measure === measure && one.column === column) ??
    numbers.find((one) => one.measure === measure)
  )
}

/** Where all values lie, if that is one bin of the histogram, which then shows nothing; empty otherwise. */
export function binSentence({ count, distribution }: StudyNumber, write: (value: number) => string): string {
  const filled = distribution?.counts.flatMap((n, bin) => (n > 0 ? [bin] : [])) ?? []
  if (!distribution || filled.length !== 1) return ''
  const [low, high] = [distribution.edges[filled[0]], distribution.edges[filled[0] + 1]]
  const values = `All ${groupDigits(count)} values are in one bin`
  return filled[0] === 0 ? `${values}, below ${write(high)}.` : `${values}, from ${write(low)} to ${write(high)}.`
}

/** The median, as precisely as it is known. */
export function medianSentence({ count, low, medianWithin }: StudyNumber, write: (value: number) => string): string {
  if (medianWithin === null) return ''
  const [below, above] = medianWithin.map(write)
  const values = `all ${groupDigits(count)} values`
  if (below === above) return `Half of ${values} are below ${above}.`
  if (medianWithin[0] === low) return `The median of ${values} is at most ${above}.`
  return `The median of ${values} is between ${below} and ${above}.`
}

/** The address that analyses a text of the data set as in the study, with a head open. */
export function analysisLink(
  { text, textPair }: Row,
  { model, mechanism }: Variant,
  { request }: Pick<Study, 'request'>,
  lens: string,
  head: Head,
): string {
  const most = typeof request.max_tokens === 'number' ? String(request.max_tokens) : ''
  const params = Object.keys(mechanism.params).length === 0 ? '' : JSON.stringify(mechanism.params)
  const fields = { text, pair: textPair, model, mechanism: mechanism.name, params, most, lens, head: headName(head) }
  const initial = { text: '', pair: '', model: '', mechanism: '', params: '', most: '', lens: 'weights', head: '' }
  return `./#${encodeFragment(fields, initial)}`
}

/** Whether two studies have the same layers and heads. */
export const sameHeads = (one: Study, other: Study) =>
  one.variants[0].layers.join() === other.variants[0].layers.join() &&
  one.variants[0].heads.join() === other.variants[0].heads.join()
