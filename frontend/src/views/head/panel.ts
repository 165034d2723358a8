/** One map on screen: its title, tokens and event handlers. Highlights change at every move and are separate. */
import type { Axis } from '../../lib/maths/axis'
import type { Detail } from '../../lib/maths/details'
import type { Box } from '../../lib/maths/highlight'
import type { Matrix, Sums } from '../../lib/maths/matrix'
import type { Scale } from '../../lib/maths/scale'

type Place = number | null

export interface Panel {
  title: string
  /** The server's warnings about it. */
  warning: string
  label: string
  /** The title of its graph. */
  graph: string
  /** What it is of: its analysis, lens and heads. */
  source: string
  /** The values that are coloured. */
  map: Matrix
  values: Matrix
  /** Parts of a long map, of which these are an overview. */
  details: readonly Detail[]
  /** The sums of a long map, once they are there. */
  sums: Sums | undefined
  /** Keys that are grey. */
  marked: readonly boolean[]
  scale: Scale
  /** Largest magnitude of the values. */
  largest: number
  queries: Axis
  keys: Axis
  /** Event handlers in places along the axes. */
  onhover: (query: Place, key: Place) => void
  onpin: (query: Place, key: Place, add: boolean) => void
  onselect: (box: Box) => void
}
