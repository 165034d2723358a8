/** One map on screen: what it is of, its tokens, and who is told what the hand does there. What is lit changes at every move, so it is no part of it. */
import type { Axis } from '../../lib/maths/axis'
import type { Box } from '../../lib/maths/highlight'
import type { Matrix } from '../../lib/maths/matrix'
import type { Scale } from '../../lib/maths/scale'

type Place = number | null

export interface Panel {
  title: string
  /** What the server warns of about it, as it stands. */
  warning: string
  label: string
  /** What its graph is called. */
  graph: string
  /** What is coloured. */
  map: Matrix
  values: Matrix
  scale: Scale
  /** Largest magnitude of the values. */
  largest: number
  queries: Axis
  keys: Axis
  /** With places along the axes. */
  onhover: (query: Place, key: Place) => void
  onpin: (query: Place, key: Place, add: boolean) => void
  onselect: (box: Box) => void
}
