/** Rasterise a map, or a window of it, to a square of device pixels. */
import type { ColourTable } from './colour'
import { INFINITE, isGap, MAGNITUDE, type Matrix } from './matrix'
import { colourIndex, type Scale } from './scale'

/** The visible part of a map, in fractions of its sides (0..1), so that it also applies to a thumbnail. */
export interface Window {
  top: number
  left: number
  size: number
}

/** A visible part that is not as high as wide. */
export interface View {
  top: number
  left: number
  height: number
  width: number
}

const viewOf = ({ top, left, size }: Window): View => ({ top, left, height: size, width: size })

export const WHOLE: Window = { top: 0, left: 0, size: 1 }

/** The smallest number of cells across, so that names and values fit. */
const LEAST_CELLS = 4

/** A window of this size as near to this position as the map allows; `cells` along the map's longer side. */
export function windowAt(left: number, top: number, size: number, cells: number): Window {
  const inside = Math.min(1, Math.max(Math.min(1, LEAST_CELLS / cells), size))
  const clamp = (value: number) => Math.min(1 - inside, Math.max(0, value))
  return inside === 1 ? WHOLE : { size: inside, left: clamp(left), top: clamp(top) }
}

/** A window with this point, in fractions of the map, in its middle: of its former size if that is at most `most` cells. */
export const windowAround = ([x, y]: [number, number], { size }: Window, most: number, cells: number): Window => {
  const close = Math.min(size, most / cells)
  return windowAt(x - close / 2, y - close / 2, close, cells)
}

/** Zoom so that the point under the pointer, in fractions of the window, stays in place. */
export function zoomWindow(window: Window, factor: number, [x, y]: [number, number], cells: number): Window {
  const size = Math.min(1, Math.max(Math.min(1, LEAST_CELLS / cells), window.size * factor))
  const change = window.size - size
  return windowAt(window.left + x * change, window.top + y * change, size, cells)
}

/** Move the window just far enough to show a cell, given by its centre in fractions of the map. */
export function moveWindow(window: Window, [x, y]: [number, number], cells: number): Window {
  const half = 0.5 / cells
  const near = (from: number, middle: number) => Math.min(middle - half, Math.max(middle + half - window.size, from))
  return windowAt(near(window.left, x), near(window.top, y), window.size, cells)
}

/** The first and the last (exclusive) of some cells that a window shows, from its start and size in fractions. */
export const visibleCells = (cells: number, start: number, size: number): [number, number] => [
  Math.max(0, Math.floor(start * cells + 1e-6)),
  Math.min(cells, Math.ceil((start + size) * cells - 1e-6)),
]

/** The centre of token `index` along an axis, in pixels from the start of the map; may be outside it. */
export const along = (index: number, count: number, start: number, { size }: Window, side: number) =>
  (((index + 0.5) / count - start) / size) * side

/** The token under a pixel of the map, or undefined outside it. */
export function tokenAt(
  pixel: number,
  count: number,
  start: number,
  { size }: Window,
  side: number,
): number | undefined {
  if (pixel < 0 || pixel >= side) return undefined
  const index = Math.floor((start + (pixel / side) * size) * count)
  return index >= 0 && index < count ? index : undefined
}

/** The largest magnitude within a window. */
export function visibleMax(map: Matrix, { top, left, size }: Window): number {
  const [[q0, q1], [k0, k1]] = [visibleCells(map.rows, top, size), visibleCells(map.cols, left, size)]
  let max = 0
  for (let q = q0; q < q1; q++)
    for (let at = q * map.cols + k0; at < q * map.cols + k1; at++) max = Math.max(max, Math.abs(map.data[at]) || 0)
  return max
}

/** First and last (exclusive) cell under each pixel. All cells under a pixel are pooled. */
export function cellSpans(cells: number, pixels: number, from: number, size: number): Int32Array {
  const bounds = new Int32Array(pixels * 2)
  const step = (size * cells) / pixels
  for (let p = 0; p < pixels; p++) {
    const start = from * cells + p * step
    const first = step >= 1 ? Math.floor(start + 1e-9) : Math.floor(start + step / 2)
    const last = step >= 1 ? Math.ceil(start + step - 1e-9) : first + 1
    bounds[2 * p] = Math.min(cells - 1, Math.max(0, first))
    bounds[2 * p + 1] = Math.min(cells, Math.max(first + 1, last))
  }
  return bounds
}

/**
 * Fill `pixels` [height, width] with the colours of a part of the map. Pooling keeps the entry of largest magnitude, so strong entries never vanish.
 * Entries without a reading (NaN) are hatched in the colour `gap`.
 */
export function rasterise(
  map: Matrix,
  scale: Scale,
  table: ColourTable,
  pixels: Uint32Array,
  [width, height]: [number, number],
  part: Window | View = WHOLE,
  gap: number = table[scale.signed ? 128 : 0],
): void {
  const view = 'size' in part ? viewOf(part) : part
  const across = cellSpans(map.cols, width, view.left, view.width)
  const down = cellSpans(map.rows, height, view.top, view.height)
  const colour = lookup(scale, table)
  const pooled = new Float32Array(width)
  for (let y = 0; y < height; y++) {
    const band: [number, number] = [down[2 * y], down[2 * y + 1]]
    if (isGaps(map, band)) {
      for (let x = 0; x < width; x++) pixels[y * width + x] = (x + y) % HATCH === 0 ? gap : colour(0)
      continue
    }
    if (y > 0 && band[0] === down[2 * y - 2] && band[1] === down[2 * y - 1]) {
      pixels.copyWithin(y * width, (y - 1) * width, y * width)
      continue
    }
    poolRow(map, across, band, pooled)
    for (let x = 0; x < width; x++) pixels[y * width + x] = colour(pooled[x])
  }
}

/** Pixels between lines of the hatching. */
const HATCH = 6

function isGaps(map: Matrix, [top, bottom]: [number, number]): boolean {
  for (let row = top; row < bottom; row++) if (!isGap(map, row)) return false
  return true
}

/**
 * The entry of largest magnitude under each pixel of a row, 0 if none has a reading. Without branches, which would be mispredicted for most of the
 * millions of entries: `take` has all bits set if an entry is larger than the largest so far and not NaN.
 */
function poolRow(
  { data, cols }: Matrix,
  across: Int32Array,
  [top, bottom]: [number, number],
  pooled: Float32Array,
): void {
  const bits = new Int32Array(data.buffer, data.byteOffset, data.length)
  const strongest = new Int32Array(pooled.buffer)
  for (let x = 0; x < pooled.length; x++) {
    let best = 0
    const first = across[2 * x]
    const last = across[2 * x + 1]
    for (let row = top * cols; row < bottom * cols; row += cols) {
      for (let i = row + first; i < row + last; i++) {
        const size = bits[i] & MAGNITUDE
        const take = (((best & MAGNITUDE) - size) & (size - INFINITE - 1)) >> 31
        best ^= (best ^ bits[i]) & take
      }
    }
    strongest[x] = best
  }
}

/** The highest of the values under each of fewer columns; null where none has a reading. */
export function highest(values: readonly (number | null)[], columns: number): (number | null)[] {
  const pooled: (number | null)[] = new Array(columns).fill(null)
  for (const [i, value] of values.entries()) {
    const at = Math.floor((i / values.length) * columns)
    if (value !== null && value > (pooled[at] ?? Number.NEGATIVE_INFINITY)) pooled[at] = value
  }
  return pooled
}

/** Logs and roots per pixel would take a frame at 512 tokens, so colours are looked up by magnitude. */
const STEPS = 8192
interface Lookup {
  scale: Scale
  table: ColourTable
  more: Uint32Array
  less: Uint32Array
}
let last: Lookup | undefined

/** All thumbnails of a grid share one scale, so the last lookup table is cached. */
function lookup(scale: Scale, table: ColourTable): (value: number) => number {
  const known = last?.table === table && sameScale(last.scale, scale) ? last : makeLookup(scale, table)
  last = known
  const { more, less } = known
  const factor = STEPS / (scale.max || 1)
  return (value) =>
    value < 0 ? less[Math.min(STEPS, (-value * factor + 0.5) | 0)] : more[Math.min(STEPS, (value * factor + 0.5) | 0)]
}

const sameScale = (a: Scale, b: Scale) => a.kind === b.kind && a.signed === b.signed && a.max === b.max

function makeLookup(scale: Scale, table: ColourTable): Lookup {
  const whole = { ...scale, max: 1 }
  const at = (sign: number) =>
    Uint32Array.from({ length: STEPS + 1 }, (_, i) => table[colourIndex((sign * i) / STEPS, whole)])
  const more = at(1)
  return { scale, table, more, less: scale.signed ? at(-1) : more }
}
