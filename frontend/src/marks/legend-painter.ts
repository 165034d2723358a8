/** Paint the bar of a legend, and say what stands below it. */

import { ratioOf, type Surface } from '../lib/drawing/context'
import { fitCanvas } from '../lib/drawing/frame'
import { type Palette, tableFor } from '../lib/drawing/palette'
import { type Scale, ticks } from '../lib/maths/scale'
import { short } from '../lib/text/format'

/** Height of the bar. */
export const BAR = 9

/** The colours of a scale from end to end. */
export function paintBar(surface: Surface, width: number, signed: boolean, palette: Palette): void {
  const context = fitCanvas(surface, width, BAR)
  const table = tableFor(palette, signed)
  const ratio = ratioOf(context)
  const image = context.createImageData(Math.round(width * ratio), Math.round(BAR * ratio))
  const pixels = new Uint32Array(image.data.buffer)
  for (let i = 0; i < pixels.length; i++) {
    const at = (i % image.width) / (image.width - 1)
    pixels[i] = table[signed ? Math.round(1 + at * 254) : Math.round(at * 255)]
  }
  context.putImageData(image, 0, 0)
}

/** Of a character of the small monospaced font, and between two numbers; in pixels. */
const ADVANCE = 7.3
const APART = 6

/** The numbers below a bar, and where they stand, 0..1. The one in the middle is left out where it would touch another. */
export function numbersBelow(scale: Scale, width: number): { at: number; text: string }[] {
  const all = ticks(scale).map(({ at, value }) => ({ at, text: short(value) }))
  const [first, middle, last] = all.map(({ text }) => text.length * ADVANCE)
  return Math.max(first, last) + APART + middle / 2 <= width / 2 ? all : [all[0], all[2]]
}
