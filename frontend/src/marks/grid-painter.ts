/** Paints the thumbnails of every head, or one colour per head, on one canvas. */
import { css, inkOn } from '../lib/colour'
import { fitCanvas } from '../lib/frame'
import { ownScale, type Tiles, tileMatrix } from '../lib/matrix'
import { MONO, type Palette, tableFor } from '../lib/palette'
import { type Pen, ratioOf, type Surface } from '../lib/pen'
import { rasterise } from '../lib/raster'
import { colourIndex, type Scale } from '../lib/scale'

export interface GridLayout {
  layers: number
  heads: number
  /** Side of one cell and the gap after it, in CSS pixels. */
  cell: number
  gap: number
}

export const gridWidth = ({ heads, cell, gap }: GridLayout) => heads * (cell + gap) - gap
export const gridHeight = ({ layers, cell, gap }: GridLayout) => layers * (cell + gap) - gap

function prepare(canvas: Surface, layout: GridLayout): Pen {
  const context = fitCanvas(canvas, gridWidth(layout), gridHeight(layout))
  context.clearRect(0, 0, gridWidth(layout), gridHeight(layout))
  return context
}

export function paintTiles(
  canvas: Surface,
  layout: GridLayout,
  tiles: Tiles,
  scale: Scale,
  palette: Palette,
  { own, gone }: { own: boolean; gone: (layer: number, head: number) => boolean },
): void {
  const context = prepare(canvas, layout)
  const ratio = ratioOf(context)
  const side = Math.round(layout.cell * ratio)
  const image = context.createImageData(side, side)
  const pixels = new Uint32Array(image.data.buffer)
  const table = tableFor(palette, scale.signed)
  const step = (layout.cell + layout.gap) * ratio
  const { cell, gap } = layout
  for (let layer = 0; layer < tiles.layers; layer++) {
    for (let head = 0; head < Math.min(tiles.heads, layout.heads); head++) {
      if (gone(layer, head) || Number.isNaN(tiles.scale[layer * tiles.heads + head])) {
        hatch(context, head * (cell + gap), layer * (cell + gap), cell, palette.line)
        continue
      }
      const tile = tileMatrix(tiles, layer, head)
      rasterise(own ? ownScale(tile) : tile, scale, table, pixels, [side, side])
      // putImageData counts in device pixels, whatever the transform.
      context.putImageData(image, Math.round(head * step), Math.round(layer * step))
    }
  }
}

export function paintValues(
  canvas: Surface,
  layout: GridLayout,
  values: (number | null)[][],
  scale: Scale,
  palette: Palette,
  write: (value: number) => string,
): void {
  const context = prepare(canvas, layout)
  const table = tableFor(palette, scale.signed)
  const { cell, gap } = layout
  context.font = "12px ui-monospace, 'DejaVu Sans Mono', monospace"
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  values.forEach((row, layer) => {
    row.forEach((value, head) => {
      const [x, y] = [head * (cell + gap), layer * (cell + gap)]
      if (value === null) hatch(context, x, y, cell, palette.line)
      else paintValue(context, [x, y, cell], write(value), table[colourIndex(value, scale)])
    })
  })
}

/** Room for the numbers of layers and heads, which on screen stand beside the canvas. */
export const HEADINGS = { left: 56, top: 34 }

/** Numbers of heads above and of layers beside a grid that begins at HEADINGS, every so many. */
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
  for (let head = 0; head < (layered ? 0 : layout.heads); head += every) {
    context.fillText(head.toString(), left + middle(head), top - 9)
  }
  context.textAlign = 'right'
  for (let layer = 0; layer < layout.layers; layer += every)
    context.fillText(layer.toString(), left - 6, top + middle(layer))
  context.fillText('layer \u2193', left - 6, top - 9)
  context.textAlign = 'left'
  if (!layered) context.fillText('head \u2192', left, top - 26)
}

/** At most three characters: that is what fits into a cell. */
export const asPercent = (value: number) => Math.round(100 * value).toString()
export const asNumber = (value: number) => value.toFixed(Math.abs(value) < 9.95 ? 1 : 0).replace('-', '\u2212')

function paintValue(context: Pen, [x, y, cell]: [number, number, number], text: string, colour: number): void {
  context.fillStyle = css(colour)
  context.fillRect(x, y, cell, cell)
  if (cell < 7 * text.length + 2) return
  context.fillStyle = inkOn(colour)
  context.fillText(text, x + cell / 2, y + cell / 2 + 1)
}

/** What has no value is struck through rather than given the colour of nought. */
function hatch(context: Pen, x: number, y: number, cell: number, colour: string): void {
  context.strokeStyle = colour
  context.lineWidth = 1
  context.beginPath()
  context.moveTo(x, y + cell)
  context.lineTo(x + cell, y)
  context.stroke()
}
