/** The grid of heads as it is painted on screen and printed. */
import { classCounts } from '../lib/drawing/classes'
import type { DrawingContext, Surface } from '../lib/drawing/context'
import type { Palette } from '../lib/drawing/palette'
import type { Tiles } from '../lib/maths/matrix'
import type { Scale } from '../lib/maths/scale'
import { cellNumber, cellPercent } from '../lib/text/format'
import { keyHeight, paintClassKey } from './class-key'
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
import type { Layer, Printable } from './print'

export interface GridContent {
  tiles?: Tiles | undefined
  /** One value per head, drawn instead of thumbnails. */
  values?: (number | null)[][] | undefined
  /** The values are shares, shown as percentages. */
  shares?: boolean
  /** Every thumbnail on a scale of its own. */
  own?: boolean
  /** What the numbers of the scale are: the measure with its unit, or whose entries. */
  unit: string
  /** What the values are about, and which heads are drawn, where that is not all: as parts of sentences. */
  about?: string
  title?: string
  /** Thumbnails show one row of their map over the whole height. */
  stretched?: boolean
  /** Heads without any reading, which are struck through. */
  gone?: (layer: number, head: number) => boolean
  scale: Scale
  overlay?: Overlay
}

/** `named`: cells carry the names of heads in place of values. */
export function paintGrid(
  surface: Surface,
  layout: GridLayout,
  content: GridContent,
  palette: Palette,
  named = !content.values,
): void {
  const { tiles, values, shares, own = false, gone = () => false, scale, overlay = {} } = content
  let context: DrawingContext | undefined
  const write = shares ? cellPercent : cellNumber
  if (values) context = paintValues(surface, layout, values, scale, palette, named ? () => '' : write)
  else if (tiles) context = paintTiles(surface, layout, tiles, scale, palette, { own, gone })
  if (context) paintOverlay(context, layout, overlay, palette)
  if (context && named) paintNames(context, layout, palette)
}

/** All heads with their headings; `layered`: one map per layer. */
export function printGrid(layout: GridLayout, content: GridContent, every: number, layered: boolean): Printable {
  const numbered = headings(layout).layers.length > 0
  const cells = layered
    ? 'One cell per layer'
    : numbered
      ? 'One cell per head: layers in rows, heads in columns'
      : 'One cell per head, in order'
  const { values, stretched, unit, about = '', title = layered ? 'All layers' : 'All heads', scale, overlay } = content
  const counts = classCounts(overlay?.classes ?? [])
  const below = keyHeight(counts, gridWidth(layout))
  const key: Layer = {
    x: HEADINGS.left,
    y: HEADINGS.top + gridHeight(layout) + 6,
    paint: (surface, colours) => paintClassKey(surface, counts, gridWidth(layout), colours),
  }
  const thumbnail = stretched
    ? 'each the row of the prediction over its whole height, tokens from left to right'
    : 'each a thumbnail whose pixels show the entry of largest magnitude'
  return {
    group: 'heads',
    title,
    note: `${cells}, ${values ? `coloured by its ${unit}${about}` : thumbnail}.`,
    width: HEADINGS.left + gridWidth(layout),
    height: HEADINGS.top + gridHeight(layout) + (below > 0 ? below + 6 : 0),
    legend: { scale, unit, left: HEADINGS.left },
    layers: [
      { paint: (surface, colours) => numbered && paintHeadings(surface, layout, colours, every, layered) },
      {
        x: HEADINGS.left,
        y: HEADINGS.top,
        paint: (surface, colours) => paintGrid(surface, layout, content, colours, !values || !numbered),
      },
      ...(below > 0 ? [key] : []),
    ],
  }
}
