/** What a heat map shows, and where on its canvas. */
import type { Palette } from '../lib/drawing/palette'
import type { Axis } from '../lib/maths/axis'
import type { Detail } from '../lib/maths/details'
import type { Matrix, Sums } from '../lib/maths/matrix'
import type { Window } from '../lib/maths/raster'
import type { Scale } from '../lib/maths/scale'

/** The map on its canvas, in CSS pixels: labels take `left` and `top`. */
export interface MapLayout {
  left: number
  top: number
  side: number
  characters: number
  /** Room for sums right of the map and below it. */
  sums?: number
}

/** What an axis shows beside a map. */
export type Named = Pick<Axis, 'labels' | 'outline'>

export interface MapPicture {
  /** The values that are coloured. */
  map: Matrix
  /** The values written into large cells; another matrix if each row is coloured on its own scale. */
  values: Matrix
  /** Parts of a long map, of which these are an overview. */
  details?: readonly Detail[]
  queries: Named
  keys: Named
  /** Keys whose columns are grey, out of the scale. */
  marked?: readonly boolean[]
  scale: Scale
  palette: Palette
  window: Window
  /** Of a long map. */
  sums?: Sums | undefined
}
