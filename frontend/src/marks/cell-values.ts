/** The values of a heat map, written into its cells. */
import type { DrawingContext } from '../lib/drawing/context'
import { tableFor } from '../lib/drawing/palette'
import { inkOn } from '../lib/maths/colour'
import { type Detail, entriesOf } from '../lib/maths/details'
import type { Matrix } from '../lib/maths/matrix'
import { along, visibleCells } from '../lib/maths/raster'
import { colourIndex, type Scale } from '../lib/maths/scale'
import { weight } from '../lib/text/format'
import type { MapLayout, MapPicture } from './map-picture'

/** Pixels that a cell needs for a weight of four digits. */
const ROOM_FOR_VALUE = 48
/** And with a minus sign. */
const ROOM_FOR_SIGNED = 56

export const roomForValue = ({ signed }: Pick<Scale, 'signed'>) => (signed ? ROOM_FOR_SIGNED : ROOM_FOR_VALUE)

/** Entries of a map, of which the first is that of these tokens. */
interface Entries {
  map: Matrix
  values: Matrix
  top: number
  left: number
}

function writeEntries(
  context: DrawingContext,
  { left, top, side }: MapLayout,
  picture: MapPicture,
  { map, values, ...first }: Entries,
): void {
  const { queries, keys, scale, palette, window } = picture
  const table = tableFor(palette, scale.signed)
  context.save()
  context.beginPath()
  context.rect(left, top, side, side)
  context.clip()
  context.textAlign = 'center'
  for (let q = 0; q < map.rows; q++) {
    const y = along(first.top + q, queries.labels.length, window.top, window, side)
    if (y < -ROOM_FOR_VALUE || y > side + ROOM_FOR_VALUE) continue
    for (let k = 0; k < map.cols; k++) {
      const x = along(first.left + k, keys.labels.length, window.left, window, side)
      const at = q * map.cols + k
      if (x < -ROOM_FOR_VALUE || x > side + ROOM_FOR_VALUE || Number.isNaN(values.data[at])) continue
      context.fillStyle = picture.marked?.[first.left + k]
        ? palette.muted
        : inkOn(table[colourIndex(map.data[at], scale)])
      context.fillText(weight(values.data[at]), left + x, top + y + 0.5)
    }
  }
  context.restore()
}

/** Write the values into cells that are large enough. */
export function writeValues(context: DrawingContext, layout: MapLayout, picture: MapPicture): void {
  const { map, values, details = [], queries, keys, scale, window } = picture
  if (layout.side / Math.max(queries.labels.length, keys.labels.length) / window.size < roomForValue(scale)) return
  if (values.exact) writeEntries(context, layout, picture, { map, values, top: 0, left: 0 })
  else if (details.length > 0) writePart(context, layout, picture, details)
}

/** Write the visible values of a long map, once all of them have been read. */
function writePart(context: DrawingContext, layout: MapLayout, picture: MapPicture, details: readonly Detail[]): void {
  const { queries, keys, window } = picture
  const rows = visibleCells(queries.labels.length, window.top, window.size)
  const columns = visibleCells(keys.labels.length, window.left, window.size)
  const map = entriesOf(details, [rows, columns])
  if (map) writeEntries(context, layout, picture, { map, values: map, top: rows[0], left: columns[0] })
}
