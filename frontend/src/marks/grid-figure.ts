/** The grid of heads as it is painted on screen and printed. */
import type { DrawingContext, Surface } from '../lib/drawing/context'
import type { Palette } from '../lib/drawing/palette'
import type { Tiles } from '../lib/maths/matrix'
import type { Scale } from '../lib/maths/scale'
import { cellNumber, cellPercent } from '../lib/text/format'
import {
  type GridLayout,
  gridHeight,
  gridWidth,
  HEADINGS,
  headings,
  type Overlay,
  paintHeadings,
  paintNames,
  paintOverlay,
  paintTiles,
  paintValues,
} from './grid-painter'
import type { Printable } from './print'

export interface GridContent {
  tiles?: Tiles | undefined
  /** One value per head, drawn instead of thumbnails. */
  values?: (number | null)[][] | undefined
  /** The values are shares, shown as percentages. */
  shares?: boolean
  /** Every thumbnail on a scale of its own. */
  own?: boolean
  /** What the numbers of the scale of thumbnails are, if not entries of all heads. */
  unit?: string | undefined
  /** Thumbnails show one row of their map over the whole height. */
  stretched?: boolean
  /** Heads without any reading, which are struck through. */
  gone?: (layer: number, head: number) => boolean
  scale: Scale
  overlay?: Overlay
}

export function paintGrid(surface: Surface, layout: GridLayout, content: GridContent, palette: Palette): void {
  const { tiles, values, shares, own = false, gone = () => false, scale, overlay = {} } = content
  let context: DrawingContext | undefined
  if (values) context = paintValues(surface, layout, values, scale, palette, shares ? cellPercent : cellNumber)
  else if (tiles) context = paintTiles(surface, layout, tiles, scale, palette, { own, gone })
  if (context) paintOverlay(context, layout, overlay, palette)
  if (context && !values) paintNames(context, layout, palette)
}

/** All heads with their headings; `layered`: one map per layer. */
export function printGrid(layout: GridLayout, content: GridContent, every: number, layered: boolean): Printable {
  const numbered = headings(layout).layers.length > 0
  const cells = layered
    ? 'One cell per layer'
    : numbered
      ? 'One cell per head: layers in rows, heads in columns'
      : 'One cell per head, in order'
  const { values, stretched, unit = 'one scale for all', scale } = content
  const thumbnail = stretched
    ? 'each the row of the prediction over its whole height, tokens from left to right'
    : 'each a thumbnail whose pixels show the entry of largest magnitude'
  return {
    group: 'heads',
    title: layered ? 'All layers' : 'All heads',
    note: `${cells}, ${values ? 'with its value' : thumbnail}.`,
    width: HEADINGS.left + gridWidth(layout),
    height: HEADINGS.top + gridHeight(layout),
    legend: { scale, unit: values ? '' : unit, left: HEADINGS.left },
    layers: [
      { paint: (surface, colours) => numbered && paintHeadings(surface, layout, colours, every, layered) },
      { x: HEADINGS.left, y: HEADINGS.top, paint: (surface, colours) => paintGrid(surface, layout, content, colours) },
    ],
  }
}
