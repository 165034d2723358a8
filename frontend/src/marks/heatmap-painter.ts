/** Paint the map of one head with its token labels, and highlights above it. */

import { type DrawingContext, ratioOf, type Surface } from '../lib/drawing/context'
import { fitCanvas } from '../lib/drawing/frame'
import { MONO, type Palette, tableFor } from '../lib/drawing/palette'
import { axisNames } from '../lib/maths/axis-names'
import { packHex } from '../lib/maths/colour'
import { drawnView, placeDetail } from '../lib/maths/details'
import { type Box, type Highlight, litKeys, litQueries } from '../lib/maths/highlight'
import { along, rasterise, type Window } from '../lib/maths/raster'
import { LABEL_HEIGHT, shorten } from '../lib/text/labels'
import { writeValues } from './cell-values'
import type { MapLayout, MapPicture, Named } from './map-picture'
import { paintSums } from './map-sums'

const GAP = 5
const HALF_NAME = 8
/** Half a line beyond the map, so that the last names are not cut. */
export const EDGE = 8

/** Width and height of the canvases. */
export function sizeOf({ left, top, side, sums = 0 }: MapLayout): [number, number] {
  const edge = Math.max(EDGE, sums + 1)
  return [left + side + edge, top + side + edge]
}

function prepare(canvas: Surface, width: number, height: number): DrawingContext {
  const context = fitCanvas(canvas, width, height)
  context.clearRect(0, 0, width, height)
  context.font = MONO
  context.textBaseline = 'middle'
  return context
}

/** The pixels of the last map on screen, which a canvas copies. Megabytes for each would wait for the garbage collector. */
let sketch: ImageData | undefined

function sketchOf(context: DrawingContext, side: number): ImageData {
  if (sketch?.width !== side) sketch = context.createImageData(side, side)
  return sketch
}

export function paintMap(canvas: Surface, layout: MapLayout, picture: MapPicture): void {
  const { left, top, side } = layout
  const context = prepare(canvas, ...sizeOf(layout))
  const ratio = ratioOf(context)
  const device = Math.round(side * ratio)
  const image = 'fit' in canvas ? context.createImageData(device, device) : sketchOf(context, device)
  const { map, queries, keys, scale, palette, window } = picture
  const pixels = new Uint32Array(image.data.buffer)
  const table = tableFor(palette, scale.signed)
  const view = drawnView(map, [queries.labels.length, keys.labels.length], window, device)
  rasterise(map, scale, table, pixels, [device, device], view, packHex(palette.muted))
  paintDetails(pixels, device, picture)
  context.putImageData(image, Math.round(left * ratio), Math.round(top * ratio))
  greyColumns(context, layout, picture)
  context.strokeStyle = palette.line
  context.lineWidth = 1
  context.strokeRect(left - 0.5, top - 0.5, side + 1, side + 1)
  writeValues(context, layout, picture)
  if (picture.sums) paintSums(context, layout, picture, picture.sums)
}

/** Parts of a long map over its overview, coarse before fine. */
function paintDetails(pixels: Uint32Array, side: number, picture: MapPicture): void {
  const { details = [], queries, keys, scale, palette, window } = picture
  const table = tableFor(palette, scale.signed)
  for (const detail of [...details].sort((a, b) => b.pool - a.pool)) {
    const placed = placeDetail(detail, [queries.labels.length, keys.labels.length], window, side)
    if (!placed) continue
    const { x, y, view } = placed
    const [width, height] = [x[1] - x[0], y[1] - y[0]]
    const part = new Uint32Array(width * height)
    rasterise(detail.map, scale, table, part, [width, height], view, packHex(palette.muted))
    for (let row = 0; row < height; row++)
      pixels.set(part.subarray(row * width, (row + 1) * width), (y[0] + row) * side + x[0])
  }
}

/** Thinner columns are left empty, as grey would hide their neighbours. */
const LEAST_GREY = 1

function greyColumns(context: DrawingContext, { left, top, side }: MapLayout, picture: MapPicture): void {
  const { marked = [], map, window, palette } = picture
  const pitch = side / map.cols / window.size
  if (pitch < LEAST_GREY || marked.length !== map.cols) return
  context.fillStyle = palette.line
  for (const [k, is] of marked.entries()) {
    const from = Math.max(0, (k / map.cols - window.left) * (side / window.size))
    const to = Math.min(side, ((k + 1) / map.cols - window.left) * (side / window.size))
    if (is && to > from) context.fillRect(left + from, top, to - from, side)
  }
}

type AxesPicture = Pick<MapPicture, 'queries' | 'keys' | 'window' | 'palette'>

/** The names along the map, on their own canvas, as opening another head does not change them. */
export function paintAxes(canvas: Surface, layout: MapLayout, picture: AxesPicture): void {
  const { side } = layout
  const { queries, keys, window, palette } = picture
  const context = prepare(canvas, ...sizeOf(layout))
  context.fillStyle = palette.muted
  for (const { at, name } of axisNames(queries, window.top, window.size, side)) rowLabel(context, layout, name, at)
  for (const { at, name } of axisNames(keys, window.left, window.size, side)) columnLabel(context, layout, name, at)
}

function rowLabel(context: DrawingContext, { left, top, characters }: MapLayout, label: string, y: number): void {
  context.textAlign = 'right'
  context.fillText(shorten(label, characters), left - GAP, top + y + 0.5)
}

function columnLabel(context: DrawingContext, layout: MapLayout, label: string, x: number): void {
  context.save()
  context.translate(layout.left + x + 0.5, layout.top - GAP)
  context.rotate(-Math.PI / 2)
  context.textAlign = 'left'
  context.fillText(shorten(label, layout.characters), 0, 0)
  context.restore()
}

/** The titles of the axes, in the corner between them; on screen they are beside the map. */
export function paintTitles(canvas: Surface, layout: MapLayout, { muted }: Palette): void {
  const context = prepare(canvas, ...sizeOf(layout))
  context.fillStyle = muted
  context.textAlign = 'right'
  context.fillText('key \u2192', layout.left - 3 * GAP, layout.top - 30)
  context.fillText('query \u2193', layout.left - 3 * GAP, layout.top - 14)
}

/** The visible part of a zoomed map; tokens counted from 0. */
export function partSentence(queries: number, keys: number, { top, left, size }: Window): string {
  const range = (count: number, from: number) =>
    `${Math.round(from * count)} to ${Math.min(count, Math.round((from + size) * count)) - 1}`
  return `Only queries ${range(queries, top)} and keys ${range(keys, left)} are shown.`
}

/** Rows and columns between two thin lines, with labels on a background so that they are legible. */
export function paintLit(canvas: Surface, layout: MapLayout, picture: MapPicture, lit: Highlight): void {
  const { left, top, side } = layout
  const context = prepare(canvas, ...sizeOf(layout))
  const { queries, keys, window, palette } = picture
  const [rowCount, columnCount] = [queries.labels.length, keys.labels.length]
  const rowPitch = side / rowCount / window.size
  const columnPitch = side / columnCount / window.size
  context.strokeStyle = palette.accent
  context.lineWidth = 1
  context.save()
  context.beginPath()
  context.rect(left - 1, top - 1, side + 2, side + 2)
  context.clip()
  for (const q of lit.queries)
    band(context, [left, top + along(q, rowCount, window.top, window, side)], [side, rowPitch])
  for (const k of lit.keys)
    band(context, [left + along(k, columnCount, window.left, window, side), top], [columnPitch, side])
  if (lit.box) frameBox(context, layout, picture, lit.box)
  context.restore()
  const rows = litNames(queries, litQueries(lit), lit.queries, window.top, window, side)
  const columns = litNames(keys, litKeys(lit), lit.keys, window.left, window, side)
  context.fillStyle = palette.paper
  for (const { from, to } of rows) context.fillRect(0, top + from, left - 2, to - from)
  for (const { from, to } of columns) context.fillRect(left + from, 0, to - from, top - 2)
  context.fillStyle = palette.accent
  for (const { name, at } of rows) rowLabel(context, layout, name, at)
  for (const { name, at } of columns) columnLabel(context, layout, name, at)
}

interface NameLabel {
  name: string
  /** The centre of a name along its axis, and the background that covers all names it would touch. */
  at: number
  from: number
  to: number
}

/** The names of a rectangle that are there anyway; a single token always has its name. */
function litNames(
  axis: Named,
  lit: readonly number[],
  single: readonly number[],
  start: number,
  window: Window,
  side: number,
): NameLabel[] {
  const names = axisNames(axis, start, window.size, side)
  const shown = new Set(names.map(({ place }) => place))
  const found: NameLabel[] = []
  for (const place of lit) {
    const at = along(place, axis.labels.length, start, window, side)
    if (at < 0 || at > side || !(single.includes(place) || shown.has(place))) continue
    // Of several in one place the first is named.
    if (found.some((other) => Math.abs(other.at - at) < HALF_NAME)) continue
    const near = [at, ...names.map((other) => other.at).filter((other) => Math.abs(other - at) < LABEL_HEIGHT)]
    found.push({ name: axis.labels[place], at, from: Math.min(...near) - HALF_NAME, to: Math.max(...near) + HALF_NAME })
  }
  return found
}

/** The selection stays as it is, and the rest is dimmed. */
function frameBox(context: DrawingContext, { left, top, side }: MapLayout, picture: MapPicture, box: Box): void {
  const { queries, keys, window, palette } = picture
  const edge = (place: number, count: number, start: number) => ((place / count - start) / window.size) * side
  const [q0, q1] = (box.queries ?? [0, queries.labels.length]).map(
    (q) => top + edge(q, queries.labels.length, window.top),
  )
  const [k0, k1] = (box.keys ?? [0, keys.labels.length]).map((k) => left + edge(k, keys.labels.length, window.left))
  const [x0, x1] = [Math.max(left, k0), Math.min(left + side, k1)]
  const [y0, y1] = [Math.max(top, q0), Math.min(top + side, q1)]
  context.fillStyle = palette.paper
  context.globalAlpha = 0.6
  context.fillRect(left, top, side, Math.max(0, y0 - top))
  context.fillRect(left, y1, side, Math.max(0, top + side - y1))
  context.fillRect(left, y0, Math.max(0, x0 - left), Math.max(0, y1 - y0))
  context.fillRect(x1, y0, Math.max(0, left + side - x1), Math.max(0, y1 - y0))
  context.globalAlpha = 1
  context.strokeRect(Math.round(k0) - 0.5, Math.round(q0) - 0.5, Math.round(k1 - k0) + 1, Math.round(q1 - q0) + 1)
}

function band(context: DrawingContext, [x, y]: [number, number], [width, height]: [number, number]): void {
  const across = width > height
  if (across)
    context.strokeRect(x - 2.5, Math.round(y - height / 2) - 0.5, width + 5, Math.max(2, Math.round(height)) + 1)
  else context.strokeRect(Math.round(x - width / 2) - 0.5, y - 2.5, Math.max(2, Math.round(width)) + 1, height + 5)
}
