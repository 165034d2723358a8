/** Every picture on the page says how it is drawn on paper; figures are put together from what is on screen. */

import type { Surface } from '../lib/drawing/context'
import type { Palette } from '../lib/drawing/palette'
import type { Scale } from '../lib/maths/scale'

/** Which of the page's pictures belong into one figure. */
export type Group = 'head' | 'heads'

interface Layer {
  /** Of what is only background. */
  opacity?: number
  /** Where its corner is. */
  x?: number
  y?: number
  paint: (surface: Surface, palette: Palette) => void
}

export interface Printable {
  group: Group
  title: string
  /** A sentence: what is drawn and how to read it. */
  note: string
  width: number
  height: number
  layers: Layer[]
  /** Its colours, with what they count. */
  legend?: { scale: Scale; unit?: string; left?: number }
}

const known = new Map<Element, () => Printable>()

/** For `{@attach ...}` on the element that shows the picture. */
export const printable = (tell: () => Printable) => (element: Element) => {
  known.set(element, tell)
  return () => known.delete(element)
}

/** What is on screen of a group, in the order of the page. */
export function printables(group: Group): Printable[] {
  const follows = (a: Element, b: Element) => (a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1)
  const elements = [...known.keys()].sort(follows)
  return elements.map((element) => known.get(element)!()).filter((picture) => picture.group === group)
}
