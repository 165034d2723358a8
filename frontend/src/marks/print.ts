/** Pictures on the page register how they are drawn on paper; figures are composed from what is on screen. */

import type { Surface } from '../lib/drawing/context'
import type { Palette } from '../lib/drawing/palette'
import type { Scale } from '../lib/maths/scale'

/** The figure that a picture belongs to. */
export type Group = 'head' | 'heads' | 'scatter'

export interface Layer {
  /** The opacity of a background. */
  opacity?: number
  /** Position of its corner. */
  x?: number
  y?: number
  paint: (surface: Surface, palette: Palette) => void
}

export interface Printable {
  group: Group
  title: string
  /** A sentence: what is drawn, and how to read it. */
  note: string
  width: number
  height: number
  layers: Layer[]
  /** Its scale, with the unit. */
  legend?: { scale: Scale; unit?: string; left?: number }
}

const known = new Map<Element, () => Printable>()

/** For `{@attach ...}` on the element that shows the picture. */
export const printable = (tell: () => Printable) => (element: Element) => {
  known.set(element, tell)
  return () => known.delete(element)
}

/** The pictures of a group on screen, in page order. */
export function printables(group: Group): Printable[] {
  const follows = (a: Element, b: Element) => (a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1)
  const elements = [...known.keys()].sort(follows)
  return elements.map((element) => known.get(element)!()).filter((picture) => picture.group === group)
}
