/** Analyses of some layers and heads only: their arrays are scattered to the original indices. */

import type { Tiles } from '../maths/matrix'
import type { Analysis, Head, Subset } from './analysis'

const within = (numbers: readonly number[], wanted: number) =>
  numbers.reduce((near, number) => (Math.abs(number - wanted) < Math.abs(near - wanted) ? number : near))

/** Null if the indices are complete. */
export function subsetOf(layers: readonly number[], heads: readonly number[]): Subset | null {
  const gapless = (numbers: readonly number[]) => numbers.every((number, place) => number === place)
  return gapless(layers) && gapless(heads) ? null : { layers, heads }
}

/** The size that holds the largest of some indices. */
export const extent = (numbers: readonly number[]) => Math.max(0, ...numbers.map((number) => number + 1))

/** The head itself if it was analysed, otherwise the nearest one that was. */
export const nearestHead = (
  { subset, layers, heads }: Pick<Analysis, 'subset' | 'layers' | 'heads'>,
  wanted: Head,
): Head =>
  subset
    ? { layer: within(subset.layers, wanted.layer), head: within(subset.heads, wanted.head) }
    : { layer: Math.min(wanted.layer, layers - 1), head: Math.min(wanted.head, heads - 1) }

export const includesHead = (
  analysis: Pick<Analysis, 'subset' | 'layers' | 'heads'>,
  { layer, head }: Head,
): boolean => {
  const { subset, layers, heads } = analysis
  return subset ? subset.layers.includes(layer) && subset.heads.includes(head) : layer < layers && head < heads
}

/** Every head that was analysed, layer by layer; head 0 for a lens with one map per layer. */
export const headsOf = ({ layers, heads }: Subset, byLayer: boolean): Head[] =>
  layers.flatMap((layer) => (byLayer ? [0] : heads).map((head) => ({ layer, head })))

/** The columns of a layer's numbers. A single number may also be that of the whole layer, which is addressed as head 0. */
const places = ({ heads }: Subset, count: number) =>
  count === 1 ? [0, heads[0]].slice(0, heads.length === 1 ? 2 : 1) : heads

/** Scatter values [L'][H'] to [L][H] by their indices; `none` fills the rest. */
export function scatter<T>(values: readonly (readonly T[])[], subset: Subset, none: T): T[][] {
  const wide = extent(subset.heads)
  const rows = Array.from({ length: extent(subset.layers) }, () => Array.from({ length: wide }, () => none))
  values.forEach((row, at) => {
    for (const [i, head] of places(subset, row.length).entries())
      rows[subset.layers[at]][head] = row[Math.min(i, row.length - 1)]
  })
  return rows
}

/** Scatter thumbnails likewise; missing ones have scale NaN. */
export function scatterTiles(tiles: Tiles, subset: Subset): Tiles {
  const [layers, heads, area] = [extent(subset.layers), extent(subset.heads), tiles.rows * tiles.cols]
  const bytes = new Uint8Array(layers * heads * area)
  const [scale, offset] = [new Float32Array(layers * heads).fill(Number.NaN), new Float32Array(layers * heads)]
  subset.layers.forEach((layer, row) => {
    for (const [i, head] of places(subset, tiles.heads).entries()) {
      const from = row * tiles.heads + Math.min(i, tiles.heads - 1)
      const to = layer * heads + head
      scale[to] = tiles.scale[from]
      offset[to] = tiles.offset[from]
      bytes.set(tiles.bytes.subarray(from * area, (from + 1) * area), to * area)
    }
  })
  return { ...tiles, bytes, scale, offset, layers, heads }
}
