/** Several heads merged into one map. */
import type { Analysis, Head } from '../data/analysis'
import { includesHead } from '../data/subset'
import { type Matrix, rounding } from './matrix'

export type Merge = 'mean' | 'max'

/** As many as an address may name. */
export const MOST_SELECTED = 240

/** The most heads that are merged: at long texts each map is many megabytes to read. */
export const MOST_HEADS = 16

/** The mean of maps, or the entry of largest magnitude, cell by cell; NaN if one of them has no reading. Maps are added one by one, so that few are in memory. */
export class MapMerger {
  #sum: Matrix | undefined
  #count = 0

  constructor(private readonly how: Merge) {}

  add(map: Matrix): void {
    this.#count += 1
    const sum = this.#sum
    if (!sum) {
      this.#sum = { ...map, data: map.data.slice() }
      return
    }
    if (map.rows !== sum.rows || map.cols !== sum.cols) throw new Error('merged: the maps differ in shape')
    const [data, more] = [sum.data, map.data]
    if (this.how === 'mean') for (let i = 0; i < data.length; i++) data[i] += more[i]
    else
      for (let i = 0; i < data.length; i++)
        if (!(Math.abs(data[i]) >= Math.abs(more[i]))) data[i] = stronger(data[i], more[i])
    const { exact, error, rowError: _, ...shape } = sum
    this.#sum = { ...shape, exact: exact && map.exact, ...rounding(Math.max(error ?? 0, map.error ?? 0)) }
  }

  /** The merged map, once all have been added. */
  finish(): Matrix {
    const merged = this.#sum
    if (!merged) throw new Error('merged: no maps')
    const { data } = merged
    if (this.how === 'mean') for (let i = 0; i < data.length; i++) data[i] /= this.#count
    return merged
  }
}

/** The mean of the maps, or the entry of largest magnitude. */
export function mergeMaps(maps: readonly Matrix[], how: Merge): Matrix {
  const merger = new MapMerger(how)
  for (const map of maps) merger.add(map)
  return merger.finish()
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
