/** The key of class marks in a figure, as ClassKey shows it on screen. */
import { CLASS_MARKS } from '../lib/drawing/classes'
import type { Surface } from '../lib/drawing/context'
import { fitCanvas } from '../lib/drawing/frame'
import { MONO, type Palette } from '../lib/drawing/palette'
import { paintClass } from './grid-painter'

export type ClassCounts = readonly [name: string, count: number][]

interface Entry {
  name: string
  text: string
  x: number
  y: number
}

const SIDE = 14
const LINE = 18
/** Widths of a character and of the space between entries. */
const [CHARACTER, SPACE] = [7.3, 14]

/** Where the entries are, in lines of this width. */
function entries(counts: ClassCounts, width: number): Entry[] {
  const found: Entry[] = []
  let [x, y] = [0, 0]
  for (const [name, count] of counts) {
    const text = `${CLASS_MARKS[name].mark === 'none' ? 'no mark: ' : ''}${name} ${count}`
    const length = SIDE + 4 + text.length * CHARACTER
    if (x > 0 && x + length > width) [x, y] = [0, y + LINE]
    found.push({ name, text, x, y })
    x += length + SPACE
  }
  return found
}

/** The height of the key, 0 without entries. */
export const keyHeight = (counts: ClassCounts, width: number): number =>
  counts.length === 0 ? 0 : Math.max(...entries(counts, width).map(({ y }) => y)) + LINE

export function paintClassKey(canvas: Surface, counts: ClassCounts, width: number, palette: Palette): void {
  const context = fitCanvas(canvas, width, keyHeight(counts, width))
  context.textBaseline = 'middle'
  context.textAlign = 'left'
  for (const { name, text, x, y } of entries(counts, width)) {
    // The glyph is in the lower right corner of its cell.
    paintClass(context, [x - 2 * SIDE, y + 2 - 2 * SIDE, 3 * SIDE], CLASS_MARKS[name].mark, palette)
    context.font = MONO
    context.fillStyle = palette.muted
    context.fillText(text, x + SIDE + 4, y + LINE / 2)
  }
}
