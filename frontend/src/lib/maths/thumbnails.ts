/** How thumbnails of effects are drawn, where a few heads dominate and a single prediction may fill only one row. */
import { maxMagnitude, type Tiles, tileMatrix } from './matrix'

/** The share of heads that a scale reaches over. */
const REACH = 0.95

export interface Reach {
  /** The largest magnitude of all heads but those that go beyond. */
  max: number
  /** The share of heads that go beyond. */
  beyond: number
}

/** A scale that few heads go beyond, so that these do not drain the others of colour. */
export function reachOf(tiles: Tiles): Reach {
  const all = heads(tiles).map((one) => maxMagnitude(tileMatrix(tiles, ...one).data))
  const sizes = all.sort((a, b) => a - b)
  const max = sizes[Math.ceil(REACH * sizes.length) - 1] ?? 0
  return { max, beyond: sizes.filter((size) => size > max).length / Math.max(1, sizes.length) }
}

/** The row that alone differs from 0 in every head; undefined if several do, or none. */
export function onlyRow(tiles: Tiles): number | undefined {
  const rows = Array.from({ length: tiles.rows }, (_, row) => row)
  const found = rows.filter((row) => heads(tiles).some((one) => fills(tiles, one, row)))
  return found.length === 1 ? found[0] : undefined
}

/** Thumbnails with one of their rows over the whole height. */
export function stretchRow(tiles: Tiles, row: number): Tiles {
  const { bytes, rows, cols } = tiles
  const stretched = new Uint8Array(bytes.length)
  for (let at = 0; at < bytes.length; at += rows * cols) {
    const own = bytes.subarray(at + row * cols, at + (row + 1) * cols)
    for (let to = 0; to < rows; to++) stretched.set(own, at + to * cols)
  }
  return { ...tiles, bytes: stretched }
}

type Place = [layer: number, head: number]

/** Those that have a thumbnail. */
const heads = ({ layers, heads, scale }: Tiles): Place[] =>
  Array.from({ length: layers * heads }, (_, at): Place => [Math.floor(at / heads), at % heads]).filter(
    ([layer, head]) => !Number.isNaN(scale[layer * heads + head]),
  )

/** Whether an entry of the row differs from 0 by more than rounding. */
function fills(tiles: Tiles, [layer, head]: Place, row: number): boolean {
  const step = tiles.scale[layer * tiles.heads + head]
  const { data, cols } = tileMatrix(tiles, layer, head)
  return maxMagnitude(data.subarray(row * cols, (row + 1) * cols)) > 0.51 * step
}
