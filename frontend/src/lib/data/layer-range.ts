/** A range of layers, which is all that the grid of heads shows of a deep model. */
import { plural } from '../text/format'
import type { Analysis, Head, Subset } from './analysis'

/** The first and the last layer, both included. */
export interface LayerRange {
  first: number
  last: number
}

/** With more layers than this, a range can be chosen. */
const MANY_LAYERS = 12

/** `8-15`, or `8` for one layer; anything else is no range. */
export function parseLayers(text: string): LayerRange | undefined {
  const match = /^(\d{1,3})(?:-(\d{1,3}))?$/.exec(text)
  if (!match) return undefined
  const [one, other] = [Number(match[1]), Number(match[2] ?? match[1])]
  return { first: Math.min(one, other), last: Math.max(one, other) }
}

type Shape = Pick<Analysis, 'subset' | 'layers' | 'heads'>

/** The layers that were analysed. */
export const allLayers = ({ subset, layers }: Shape): readonly number[] =>
  subset?.layers ?? Array.from({ length: layers }, (_, layer) => layer)

export const inRange = (range: LayerRange | undefined, { layer }: Pick<Head, 'layer'>): boolean =>
  range === undefined || (layer >= range.first && layer <= range.last)

/** The range if it leaves some layers out, but not all. */
export function effectiveRange(analysis: Shape, range: LayerRange | undefined): LayerRange | undefined {
  const all = allLayers(analysis)
  const left = all.filter((layer) => inRange(range, { layer })).length
  return left > 0 && left < all.length ? range : undefined
}

/** Whether a range can be chosen, or is. */
export const offersRange = (analysis: Shape, range: LayerRange | undefined): boolean =>
  analysis.layers > MANY_LAYERS || effectiveRange(analysis, range) !== undefined

/** The layers and heads in an effective range; null if these are all. */
export function withinRange(analysis: Shape, range: LayerRange | undefined): Subset | null {
  if (!range) return analysis.subset
  const layers = allLayers(analysis).filter((layer) => inRange(range, { layer }))
  return { layers, heads: analysis.subset?.heads ?? Array.from({ length: analysis.heads }, (_, head) => head) }
}

/** The range after one end was chosen; the other end moves along if it has to. Empty if it is all of `layers`. */
export function chooseEnd(layers: readonly number[], range: LayerRange, end: keyof LayerRange, layer: number): string {
  const first = end === 'first' ? layer : Math.min(range.first, layer)
  const last = end === 'last' ? layer : Math.max(range.last, layer)
  return first === layers[0] && last === layers.at(-1) ? '' : `${first}-${last}`
}

/** What is in layers that are not shown, as a sentence; empty if nothing is. */
export function outsideSentence(
  range: LayerRange | undefined,
  { found, selected, open }: { found: readonly Head[]; selected: readonly Head[]; open: Head },
): string {
  const outside = (heads: readonly Head[]) => heads.filter((head) => !inRange(range, head)).length
  const several = [
    { count: outside(found), what: 'found' },
    { count: outside(selected), what: 'selected' },
  ]
  const parts = several.flatMap(({ count, what }) => (count > 0 ? [`${plural(count, `${what} head`)}`] : []))
  const opened = inRange(range, open) ? [] : [`the open head ${open.layer}.${open.head}`]
  const all = [...parts, ...opened]
  return all.length === 0 ? '' : `Not shown: ${all.join(', ')}.`
}
