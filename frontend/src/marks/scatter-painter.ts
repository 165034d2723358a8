/** Paint a scatter of heads: a dot per head, axes with round numbers, and the open and selected heads. */
import type { DrawingContext, Surface } from '../lib/drawing/context'
import { fitCanvas } from '../lib/drawing/frame'
import { MONO, type Palette } from '../lib/drawing/palette'
import { type HeadPoint, niceTicks } from '../lib/maths/scatter'
import { short } from '../lib/text/format'

interface ScatterAxis {
  title: string
  range: readonly [low: number, high: number]
}

export interface ScatterLayout {
  width: number
  height: number
}

export interface ScatterPicture {
  points: readonly HeadPoint[]
  x: ScatterAxis
  y: ScatterAxis
  open: HeadPoint | undefined
  selected: ReadonlySet<HeadPoint>
  pointed: HeadPoint | undefined
  palette: Palette
}

const SANS = "12px system-ui, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
const LEFT = 62
const BOTTOM = 44
const TOP = 10
const RIGHT = 16
/** The mean width of a letter, in pixels. */
const LETTER = 6.3
const TICK = 4
const DOT = 4
const MANY = 200

/** The place of a value, in pixels. */
export function placeOnScatter({ width, height }: ScatterLayout, { x, y }: Pick<ScatterPicture, 'x' | 'y'>) {
  const along = (value: number, [low, high]: ScatterAxis['range']) => (value - low) / (high - low)
  return (point: { x: number; y: number }): [number, number] => [
    LEFT + along(point.x, x.range) * (width - LEFT - RIGHT),
    TOP + (1 - along(point.y, y.range)) * (height - TOP - BOTTOM),
  ]
}

export function paintScatter(surface: Surface, layout: ScatterLayout, picture: ScatterPicture): void {
  const context = fitCanvas(surface, layout.width, layout.height)
  context.clearRect(0, 0, layout.width, layout.height)
  paintScales(context, layout, picture)
  const { points, palette, open, selected, pointed } = picture
  const at = placeOnScatter(layout, picture)
  const radius = points.length > MANY ? DOT - 1 : DOT
  const dot = (point: HeadPoint, size: number) => {
    context.beginPath()
    context.arc(...at(point), size, 0, 2 * Math.PI)
  }
  for (const chosen of [false, true]) {
    context.globalAlpha = chosen || selected.size === 0 ? 0.85 : 0.45
    context.fillStyle = chosen ? palette.ink : palette.more
    for (const point of points) {
      if (selected.has(point) !== chosen) continue
      dot(point, radius)
      context.fill()
    }
  }
  context.globalAlpha = 1
  for (const [point, colour] of [
    [pointed, palette.ink],
    [open, palette.accent],
  ] as const) {
    if (!point) continue
    context.strokeStyle = colour
    context.lineWidth = 2
    dot(point, radius + 3)
    context.stroke()
    name(context, layout, at(point), `${point.layer}.${point.head}`, colour, palette)
  }
}

function name(
  context: DrawingContext,
  { width }: ScatterLayout,
  [x, y]: [number, number],
  text: string,
  colour: string,
  palette: Palette,
): void {
  const right = x < width - 60
  context.font = MONO
  context.textBaseline = 'middle'
  context.textAlign = right ? 'left' : 'right'
  const wide = text.length * 7.4
  context.globalAlpha = 0.8
  context.fillStyle = palette.paper
  context.fillRect(right ? x + 9 : x - 9 - wide, y - 8, wide, 16)
  context.globalAlpha = 1
  context.fillStyle = colour
  context.fillText(text, right ? x + 10 : x - 10, y)
}

function paintScales(context: DrawingContext, layout: ScatterLayout, picture: ScatterPicture): void {
  const { height } = layout
  const { x, y, palette } = picture
  const at = placeOnScatter(layout, picture)
  const [left, bottom] = at({ x: x.range[0], y: y.range[0] })
  const [right, top] = at({ x: x.range[1], y: y.range[1] })
  context.strokeStyle = palette.line
  context.lineWidth = 1
  context.fillStyle = palette.muted
  context.font = MONO
  const line = (x0: number, y0: number, x1: number, y1: number) => {
    context.beginPath()
    context.moveTo(x0, y0)
    context.lineTo(x1, y1)
    context.stroke()
  }
  context.textAlign = 'center'
  context.textBaseline = 'alphabetic'
  for (const tick of niceTicks(x.range, Math.max(2, Math.round((right - left) / 90)))) {
    const [place] = at({ x: tick, y: y.range[0] })
    line(place, top, place, bottom + TICK)
    context.fillText(short(tick), place, bottom + TICK + 13)
  }
  context.textAlign = 'right'
  context.textBaseline = 'middle'
  for (const tick of niceTicks(y.range, Math.max(2, Math.round((bottom - top) / 60)))) {
    const [, place] = at({ x: x.range[0], y: tick })
    line(left - TICK, place, right, place)
    context.fillText(short(tick), left - TICK - 4, place)
  }
  context.font = SANS
  context.fillStyle = palette.ink
  context.textAlign = 'center'
  context.textBaseline = 'alphabetic'
  context.fillText(x.title, (left + right) / 2, height - 8)
  context.save()
  // A long title may be longer than the axis, but not than the picture.
  const half = (y.title.length * LETTER) / 2
  context.translate(12, Math.max(half, Math.min(height - half, (top + bottom) / 2)))
  context.rotate(-Math.PI / 2)
  context.fillText(y.title, 0, 0)
  context.restore()
}

/** The line that the hand draws around some heads. */
export function paintLasso(
  surface: Surface,
  layout: ScatterLayout,
  line: readonly (readonly [number, number])[],
  palette: Palette,
): void {
  const context = fitCanvas(surface, layout.width, layout.height)
  context.clearRect(0, 0, layout.width, layout.height)
  if (line.length < 2) return
  context.beginPath()
  for (const [i, [x, y]] of line.entries()) {
    if (i === 0) context.moveTo(x, y)
    else context.lineTo(x, y)
  }
  context.closePath()
  context.globalAlpha = 0.1
  context.fillStyle = palette.accent
  context.fill()
  context.globalAlpha = 1
  context.strokeStyle = palette.accent
  context.lineWidth = 1.5
  context.stroke()
}
