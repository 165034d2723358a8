/** Several heads merged into one map. */
import type { Analysis, Head } from '../data/analysis'
import { includesHead } from '../data/subset'
import { type Matrix, rounding } from './matrix'

export type Merge = 'mean' | 'max'

/** As many as an address may name. */
export const MOST_SELECTED = 240

/** The most heads that are merged: more would exhaust the browser's memory at long texts. */
export const MOST_HEADS = 16

/** The mean of the maps, or the entry of largest magnitude, cell by cell; NaN if one of them has no reading. */
export function mergeMaps(maps: readonly Matrix[], how: Merge): Matrix {
  const [{ rows, cols }] = maps
  if (maps.some((map) => map.rows !== rows || map.cols !== cols)) throw new Error('merged: the maps differ in shape')
  const data = Float32Array.from(maps[0].data)
  for (const { data: more } of maps.slice(1)) {
    if (how === 'mean') for (let i = 0; i < data.length; i++) data[i] += more[i]
    else
      for (let i = 0; i < data.length; i++)
        if (!(Math.abs(data[i]) >= Math.abs(more[i]))) data[i] = stronger(data[i], more[i])
  }
  if (how === 'mean') for (let i = 0; i < data.length; i++) data[i] /= maps.length
  const error = Math.max(...maps.map(({ error = 0 }) => error))
  return { data, rows, cols, exact: maps.every(({ exact }) => exact), ...rounding(error) }
}

const stronger = (a: number, b: number) => (Number.isNaN(a) ? a : b)

export const sameHead = (a: Head, b: Head) => a.layer === b.layer && a.head === b.head

/** The neighbours right, left, below and above that exist. */
export function neighbours({ layer, head }: Head, analysis: Pick<Analysis, 'layers' | 'heads' | 'subset'>): Head[] {
  const along = [1, -1].map((step) => ({ layer, head: head + step }))
  const across = [1, -1].map((step) => ({ layer: layer + step, head }))
  return [...along, ...across].filter((near) => near.layer >= 0 && near.head >= 0 && includesHead(analysis, near))
}

/** A head to compare the open one with: another selected one, otherwise a neighbour. */
export function otherHead(open: Head, selected: readonly Head[], analysis: Parameters<typeof neighbours>[1]): Head {
  return selected.find((head) => !sameHead(head, open)) ?? neighbours(open, analysis)[0] ?? open
}

/** Add a head to the selection, or remove it. */
export function toggleHead(heads: readonly Head[], head: Head): Head[] {
  const rest = heads.filter((other) => !sameHead(other, head))
  return rest.length < heads.length ? rest : [...heads, head].slice(-MOST_SELECTED)
}
