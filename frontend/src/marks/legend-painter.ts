/** Paint the bar of a legend. */

import { ratioOf, type Surface } from '../lib/drawing/context'
import { fitCanvas } from '../lib/drawing/frame'
import { type Palette, tableFor } from '../lib/drawing/palette'

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
