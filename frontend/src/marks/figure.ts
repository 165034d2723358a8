/** Compose a figure for print: pictures of the page with titles, scales and a caption, as one SVG. */

import type { DrawingContext, Surface } from '../lib/drawing/context'
import { fitCanvas } from '../lib/drawing/frame'
import type { Palette } from '../lib/drawing/palette'
import { Drawing, type Encode } from '../lib/drawing/svg'
import { SCALE_WORDS } from '../lib/maths/scale'
import { BAR, numbersBelow, paintBar } from './legend-painter'
import type { Printable } from './print'

const SANS = "system-ui, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
const SMALL_MONO = "12px 'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace"
const MARGIN = 16
const GAP = 32
const TITLE = 28
const LEGEND = 58
const LINE = 17
const WIDEST = 1400
/** Characters of the caption per pixel. */
const DENSITY = 1 / 6.2
const LEAST_CAPTION = 420
/** Pixels of maps per CSS pixel: 384 per inch. */
const FINE = 4

interface PlacedPicture {
  picture: Printable
  x: number
  y: number
}

/** Lay out pictures in rows, as many beside each other as fit. */
function place(pictures: readonly Printable[]): { placed: PlacedPicture[]; width: number; height: number } {
  const placed: PlacedPicture[] = []
  let [x, y, width, row] = [MARGIN, MARGIN, 0, 0]
  for (const picture of pictures) {
    if (x > MARGIN && x + picture.width > WIDEST) [x, y, row] = [MARGIN, y + row + GAP, 0]
    placed.push({ picture, x, y })
    row = Math.max(row, TITLE + picture.height + (picture.legend ? LEGEND : 0))
    x += picture.width + GAP
    width = Math.max(width, x - GAP + MARGIN)
  }
  return { placed, width, height: y + row }
}

/** Wrap the caption into lines. */
export function wrap(text: string, characters: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line && line.length + 1 + word.length > characters) {
      lines.push(line)
      line = ''
    }
    line = line ? `${line} ${word}` : word
    // A single word may be as long as a text.
    for (; line.length > characters; line = line.slice(characters)) lines.push(line.slice(0, characters))
  }
  return line ? [...lines, line] : lines
}

/** The caption in one paragraph: what applies to all, each picture, and the source. */
export function figureSvg(
  pictures: readonly Printable[],
  title: string,
  [caption, source]: readonly [caption: string, source: string],
  palette: Palette,
  encode: Encode,
): string {
  const { placed, width: across, height: down } = place(pictures)
  const width = Math.max(across, LEAST_CAPTION)
  const letter = (index: number) => (pictures.length > 1 ? String.fromCharCode(97 + index) : '')
  const notes = pictures.map(({ note }, i) => (letter(i) ? `${letter(i)}, ${note}` : note))
  const lines = wrap([caption, ...notes, source].join(' '), Math.floor((width - 2 * MARGIN) * DENSITY))
  const height = down + 14 + lines.length * LINE + MARGIN
  const drawing = new Drawing(FINE, encode)
  drawing.write(`<rect width="${width}" height="${height}" fill="${palette.paper}"/>`)
  placed.forEach(({ picture, x, y }, i) => {
    write(drawing, x, y, (context) => titleOf(context, letter(i), picture.title, palette))
    for (const { opacity = 1, x: left = 0, y: top = 0, paint } of picture.layers) {
      drawing.write(`<g opacity="${opacity}">`)
      on(drawing, x + left, y + TITLE + top, (sheet) => paint(sheet, palette))
      drawing.write('</g>')
    }
    if (picture.legend) legend(drawing, picture, x + (picture.legend.left ?? 0), y + TITLE + picture.height, palette)
  })
  write(drawing, MARGIN, down + 14, (context) => {
    context.font = `12px ${SANS}`
    context.fillStyle = palette.ink
    lines.forEach((line, i) => {
      context.fillText(line, 0, 12 + i * LINE)
    })
  })
  return drawing.svg(width, height, title)
}

function on(drawing: Drawing, x: number, y: number, paint: (surface: Surface) => void): void {
  const sheet = drawing.sheet(x, y)
  paint(sheet)
  sheet.end()
}

const write = (drawing: Drawing, x: number, y: number, draw: (context: DrawingContext) => void) =>
  on(drawing, x, y, (sheet) => draw(fitCanvas(sheet, 0, 0)))

function titleOf(context: DrawingContext, letter: string, title: string, palette: Palette): void {
  context.fillStyle = palette.ink
  context.font = `bold 14px ${SANS}`
  if (letter) context.fillText(letter, 0, 14)
  context.font = `13px ${SANS}`
  context.fillText(title, letter ? 18 : 0, 14)
}

function legend(drawing: Drawing, picture: Printable, x: number, y: number, palette: Palette): void {
  const { scale, unit } = picture.legend!
  const width = Math.min(176, picture.width - (picture.legend!.left ?? 0))
  on(drawing, x, y + 10, (sheet) => paintBar(sheet, width, scale.signed, palette))
  write(drawing, x, y + 10, (context) => {
    context.strokeStyle = palette.line
    context.strokeRect(-0.5, -0.5, width + 1, BAR + 1)
    context.fillStyle = palette.ink
    context.font = SMALL_MONO
    for (const { at, text } of numbersBelow(scale, width)) {
      context.textAlign = at === 0 ? 'left' : at === 1 ? 'right' : 'center'
      context.fillText(text, at * width, 24)
    }
    context.textAlign = 'left'
    context.font = `12px ${SANS}`
    const words = `${SCALE_WORDS[scale.kind]}${unit ? `, ${unit}` : ''}`
    // Beside the bar if it is wide enough, otherwise below its numbers.
    const beside = words.length / DENSITY <= picture.width - (picture.legend!.left ?? 0) - width - 12
    context.fillText(words, beside ? width + 12 : 0, beside ? 9 : 42)
  })
}
