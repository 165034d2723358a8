/** Paint the thumbnails of all heads, or one colour per head, on one canvas. */
import { type Head, headName, type Subset } from '../lib/data/analysis'
import { CLASS_MARKS, type ClassMark } from '../lib/drawing/classes'
import { type DrawingContext, ratioOf, type Surface } from '../lib/drawing/context'
import { fitCanvas } from '../lib/drawing/frame'
import { MONO, type Palette, tableFor } from '../lib/drawing/palette'
import type { Box } from '../lib/drawing/visible'
import { css, inkOn } from '../lib/maths/colour'
import { ownScale, type Tiles, tileMatrix } from '../lib/maths/matrix'
import { rasterise } from '../lib/maths/raster'
import { colourIndex, type Scale } from '../lib/maths/scale'

export interface GridLayout {
  layers: number
  heads: number
  /** The side of a cell and the gap after it, in CSS pixels. */
  cell: number
  gap: number
  /** Heads in sorted order, row by row; otherwise layer by layer. If sorted, `layers` and `heads` are numbers of rows and columns. */
  order?: readonly Head[]
  /** The indices of rows and columns of a partial analysis. */
  subset?: Subset
  /** The rows and columns that are on screen; absent if all are drawn. */
  part?: GridPart
}

/** Rows and columns, each from the first to after the last. */
interface GridPart {
  rows: readonly [number, number]
  columns: readonly [number, number]
}

/** The cells within a box in pixels. */
export function partWithin({ layers, heads, cell, gap }: GridLayout, box: Box): GridPart {
  const clamp = (place: number, count: number) => Math.min(count, Math.max(0, place))
  const span = (from: number, to: number, count: number): [number, number] => [
    clamp(Math.floor(from / (cell + gap)), count),
    clamp(Math.ceil(to / (cell + gap)), count),
  ]
  return { rows: span(box.top, box.bottom, layers), columns: span(box.left, box.right, heads) }
}

const drawnPart = ({ layers, heads, part }: GridLayout): GridPart => part ?? { rows: [0, layers], columns: [0, heads] }

/** Left, top, width and height of the drawn cells, in pixels. */
export function drawnBox(layout: GridLayout): [left: number, top: number, width: number, height: number] {
  const { rows, columns } = drawnPart(layout)
  const step = layout.cell + layout.gap
  const length = ([from, to]: readonly [number, number]) => Math.max(0, (to - from) * step - layout.gap)
  return [columns[0] * step, rows[0] * step, length(columns), length(rows)]
}

/** Row and column headings; empty if heads are sorted. */
export function headings({ layers, heads, order, subset }: GridLayout): Subset {
  const range = (count: number) => Array.from({ length: count }, (_, i) => i)
  return subset ?? { layers: range(order ? 0 : layers), heads: range(order ? 0 : heads) }
}

/** The head in a row and column; undefined after the end of the order. */
export const headAt = ({ order, heads }: GridLayout, row: number, column: number): Head | undefined =>
  order ? order[row * heads + column] : { layer: row, head: column }

/** Row and column of a head; undefined if the order does not contain it. */
export function placeOf(
  { order, heads }: GridLayout,
  { layer, head }: Head,
): [row: number, column: number] | undefined {
  if (!order) return [layer, head]
  const at = order.findIndex((other) => other.layer === layer && other.head === head)
  return at < 0 ? undefined : [Math.floor(at / heads), at % heads]
}

function eachCell(layout: GridLayout, paint: (head: Head, x: number, y: number) => void): void {
  const { rows, columns } = drawnPart(layout)
  const step = layout.cell + layout.gap
  for (let row = rows[0]; row < rows[1]; row++) {
    for (let column = columns[0]; column < columns[1]; column++) {
      const head = headAt(layout, row, column)
      if (head) paint(head, (column - columns[0]) * step, (row - rows[0]) * step)
    }
  }
}

export const gridWidth = ({ heads, cell, gap }: GridLayout) => heads * (cell + gap) - gap
export const gridHeight = ({ layers, cell, gap }: GridLayout) => layers * (cell + gap) - gap

function prepare(canvas: Surface, layout: GridLayout): DrawingContext {
  const [, , width, height] = drawnBox(layout)
  const context = fitCanvas(canvas, width, height)
  context.clearRect(0, 0, width, height)
  return context
}

export function paintTiles(
  canvas: Surface,
  layout: GridLayout,
  tiles: Tiles,
  scale: Scale,
  palette: Palette,
  { own, gone }: { own: boolean; gone: (layer: number, head: number) => boolean },
): DrawingContext {
  const context = prepare(canvas, layout)
  const ratio = ratioOf(context)
  const side = Math.round(layout.cell * ratio)
  const image = context.createImageData(side, side)
  const pixels = new Uint32Array(image.data.buffer)
  const table = tableFor(palette, scale.signed)
  eachCell(layout, ({ layer, head }, x, y) => {
    const index = layer * tiles.heads + head
    if (layer >= tiles.layers || head >= tiles.heads) return
    frame(context, [x, y, layout.cell], palette)
    if (gone(layer, head) || Number.isNaN(tiles.scale[index])) {
      hatch(context, [x, y, layout.cell], palette)
      return
    }
    const tile = tileMatrix(tiles, layer, head)
    rasterise(own ? ownScale(tile) : tile, scale, table, pixels, [side, side])
    // putImageData uses device pixels and ignores the transform.
    context.putImageData(image, Math.round(x * ratio), Math.round(y * ratio))
  })
  return context
}

export function paintValues(
  canvas: Surface,
  layout: GridLayout,
  values: (number | null)[][],
  scale: Scale,
  palette: Palette,
  write: (value: number) => string,
): DrawingContext {
  const context = prepare(canvas, layout)
  const table = tableFor(palette, scale.signed)
  context.font = "12px ui-monospace, 'DejaVu Sans Mono', monospace"
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  const texts = values.map((row) => row.map((value) => (value === null ? '' : inCell(write(value), layout.cell))))
  // Numbers in some cells only would look as if the others were 0.
  const numbered = texts.every((row) => !row.includes(undefined))
  eachCell(layout, ({ layer, head }, x, y) => {
    const value = values[layer]?.[head] ?? null
    frame(context, [x, y, layout.cell], palette)
    if (value === null) hatch(context, [x, y, layout.cell], palette)
    else
      paintValue(context, [x, y, layout.cell], (numbered && texts[layer][head]) || '', table[colourIndex(value, scale)])
  })
  return context
}

/** Overlays on the maps: class marks, and a veil over heads that do not match. */
export interface Overlay {
  /** Heads that are not dimmed; undefined for all. */
  lit?: ReadonlySet<string> | undefined
  classes?: readonly (readonly (string | null)[])[] | undefined
}

export function paintOverlay(
  context: DrawingContext,
  layout: GridLayout,
  { lit, classes }: Overlay,
  palette: Palette,
): void {
  eachCell(layout, (head, x, y) => {
    const name = classes?.[head.layer]?.[head.head]
    if (name) paintClass(context, [x, y, layout.cell], CLASS_MARKS[name]?.mark ?? 'none', palette)
    if (lit && !lit.has(headName(head))) veil(context, [x, y, layout.cell], palette.paper, 0.8)
  })
}

/** If sorted, cells carry the names of heads, if large enough. */
export function paintNames(context: DrawingContext, layout: GridLayout, palette: Palette): void {
  if (!layout.order || layout.subset || layout.cell < 30) return
  context.font = MONO
  context.textAlign = 'left'
  context.textBaseline = 'middle'
  eachCell(layout, (head, x, y) => {
    const name = headName(head)
    veil(context, [x, y + layout.cell - 14, name.length * 7.3 + 3], palette.paper, 0.85, 14)
    context.fillStyle = palette.ink
    context.fillText(name, x + 1, y + layout.cell - 6)
  })
}

type Square = [x: number, y: number, side: number]

/** The side of the glyph of a class: a fraction of its cell, but large enough to be read. */
const glyphSide = (side: number) => Math.min(side, Math.max(8, Math.min(14, Math.round(side * 0.32))))

/** A class as a glyph in the lower right corner, on a ground of its own so that it stands out from any map. */
export function paintClass(
  context: DrawingContext,
  [cellX, cellY, cell]: Square,
  mark: ClassMark,
  palette: Palette,
): void {
  if (mark === 'none') return
  const side = glyphSide(cell)
  const [x, y] = [cellX + cell - side, cellY + cell - side]
  veil(context, [x, y, side], palette.paper, 0.9)
  const [left, top, right, bottom] = [x + 2, y + 2, x + side - 2, y + side - 2]
  context.fillStyle = palette.ink
  if (mark === 'dot') context.fillRect(x + side / 2 - 1, y + side / 2 - 1, 2, 2)
  if (mark === 'block') {
    const half = (right - left) / 2
    context.fillRect(left, top, half, half)
    context.fillRect(left + half, top + half, half, half)
  }
  if (mark.includes('bar')) context.fillRect(left, top, 1.5, bottom - top)
  if (mark.includes('slash')) {
    context.strokeStyle = palette.ink
    context.lineWidth = 1.5
    context.beginPath()
    context.moveTo(left, top)
    context.lineTo(right, bottom)
    context.stroke()
  }
}

function veil(context: DrawingContext, [x, y, side]: Square, colour: string, alpha: number, height = side): void {
  context.globalAlpha = alpha
  context.fillStyle = colour
  context.fillRect(x, y, side, height)
  context.globalAlpha = 1
}

/** Space for the indices of layers and heads, which on screen are beside the canvas. */
export const HEADINGS = { left: 56, top: 34 }

/** Indices of heads above and of layers beside a grid that starts at HEADINGS, with a step. */
export function paintHeadings(
  canvas: Surface,
  layout: GridLayout,
  palette: Palette,
  every: number,
  layered: boolean,
): void {
  const { left, top } = HEADINGS
  const context = fitCanvas(canvas, left + gridWidth(layout), top + gridHeight(layout))
  const middle = (index: number) => index * (layout.cell + layout.gap) + layout.cell / 2
  context.fillStyle = palette.muted
  context.font = MONO
  context.textBaseline = 'middle'
  context.textAlign = 'center'
  const { layers, heads } = headings(layout)
  for (let at = 0; at < (layered ? 0 : heads.length); at += every) {
    context.fillText(heads[at].toString(), left + middle(at), top - 9)
  }
  context.textAlign = 'right'
  for (let at = 0; at < layers.length; at += every) context.fillText(layers[at].toString(), left - 6, top + middle(at))
  context.fillText('layer \u2193', left - 6, top - 9)
  context.textAlign = 'left'
  if (!layered) context.fillText('head \u2192', left, top - 26)
}

/** A number as short as a cell is wide; undefined if it does not fit. */
const inCell = (text: string, cell: number) =>
  // A negative number has a sign that a positive one has not.
  [text, text.replace('\u22120.', '\u2212.')].find(({ length }) => cell >= 7 * length + 2)

function paintValue(
  context: DrawingContext,
  [x, y, cell]: [number, number, number],
  text: string,
  colour: number,
): void {
  context.fillStyle = css(colour)
  context.fillRect(x, y, cell, cell)
  context.fillStyle = inkOn(colour)
  context.fillText(text, x + cell / 2, y + cell / 2 + 1)
}

/** A hairline around a cell, painted because a thousand CSS borders slow down scrolling. */
function frame(context: DrawingContext, [x, y, side]: Square, palette: Palette): void {
  context.fillStyle = palette.line
  context.fillRect(x - 1, y - 1, side + 2, side + 2)
  context.fillStyle = palette.paper
  context.fillRect(x, y, side, side)
}

/** Cells without a value are struck through rather than coloured as zero. */
function hatch(context: DrawingContext, [x, y, side]: Square, palette: Palette): void {
  context.strokeStyle = palette.muted
  context.lineWidth = 1
  context.beginPath()
  context.moveTo(x, y + side)
  context.lineTo(x + side, y)
  context.stroke()
}
