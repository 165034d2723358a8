/** Draws a map, or a window of it, into a square of device pixels. */
import type { ColourTable } from './colour'
import { isGap, type Matrix } from './matrix'
import { colourIndex, type Scale } from './scale'

/** The part of a map on screen, in fractions of its sides (0..1), so that it also fits a thumbnail. */
export interface Window {
  top: number
  left: number
  size: number
}
export const WHOLE: Window = { top: 0, left: 0, size: 1 }

/** Never fewer cells across than this, so that names and values have room. */
const LEAST_CELLS = 4

/** A window of that size as near to that place as the map allows. `cells` along the map's longer side. */
export function windowAt(left: number, top: number, size: number, cells: number): Window {
  const inside = Math.min(1, Math.max(Math.min(1, LEAST_CELLS / cells), size))
  const clamp = (value: number) => Math.min(1 - inside, Math.max(0, value))
  return inside === 1 ? WHOLE : { size: inside, left: clamp(left), top: clamp(top) }
}

/** Closer or further, so that what lies under a point, in fractions of the window, stays there. */
export function zoomWindow(window: Window, factor: number, [x, y]: [number, number], cells: number): Window {
  const size = Math.min(1, Math.max(Math.min(1, LEAST_CELLS / cells), window.size * factor))
  const change = window.size - size
  return windowAt(window.left + x * change, window.top + y * change, size, cells)
}

/** The window moved no further than it takes to show a cell, given by its middle in fractions of the map. */
export function moveWindow(window: Window, [x, y]: [number, number], cells: number): Window {
  const half = 0.5 / cells
  const near = (from: number, middle: number) => Math.min(middle - half, Math.max(middle + half - window.size, from))
  return windowAt(near(window.left, x), near(window.top, y), window.size, cells)
}

/** First and last (exclusive) cell under each pixel. Many cells under one pixel: all are pooled. */
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
 * Fills `pixels` [height, width] with colours. Pooling keeps the entry of largest magnitude: nothing strong vanishes.
 * What has no reading (NaN) is hatched in the colour `gap`.
 */
export function rasterise(
  map: Matrix,
  scale: Scale,
  table: ColourTable,
  pixels: Uint32Array,
  [width, height]: [number, number],
  window: Window = WHOLE,
  gap: number = table[scale.signed ? 128 : 0],
): void {
  const across = cellSpans(map.cols, width, window.left, window.size)
  const down = cellSpans(map.rows, height, window.top, window.size)
  const colour = lookup(scale, table)
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
    rasteriseRow(map, across, band, colour, pixels, y * width)
  }
}

/** Pixels from one line of the hatch to the next. */
const HATCH = 6

function isGaps(map: Matrix, [top, bottom]: [number, number]): boolean {
  for (let row = top; row < bottom; row++) if (!isGap(map, row)) return false
  return true
}

function rasteriseRow(
  { data, cols }: Matrix,
  across: Int32Array,
  [top, bottom]: [number, number],
  colour: (value: number) => number,
  pixels: Uint32Array,
  at: number,
): void {
  const width = across.length / 2
  for (let x = 0; x < width; x++) {
    let [strongest, size] = [0, 0]
    const [first, last] = [across[2 * x], across[2 * x + 1]]
    for (let row = top * cols; row < bottom * cols; row += cols) {
      for (let i = row + first; i < row + last; i++) {
        const value = data[i]
        const magnitude = value < 0 ? -value : value
        if (magnitude > size) {
          size = magnitude
          strongest = value
        }
      }
    }
    pixels[at + x] = colour(strongest)
  }
}

/** Logs and roots per pixel would cost a frame at 512 tokens: colours by magnitude are looked up instead. */
const STEPS = 8192
interface Lookup {
  scale: Scale
  table: ColourTable
  more: Uint32Array
  less: Uint32Array
}
let last: Lookup | undefined

/** One scale serves all thumbnails of a grid, so the last lookup is kept. */
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
