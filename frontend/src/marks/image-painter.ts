/** Paint where a patch attends, over the image that the patches are from. */
import type { Picture, Token } from '../lib/data/analysis'
import { ratioOf, type Surface } from '../lib/drawing/context'
import { fitCanvas } from '../lib/drawing/frame'
import { type Palette, tableFor } from '../lib/drawing/palette'
import { css } from '../lib/maths/colour'
import { colourIndex, type Scale } from '../lib/maths/scale'

export interface ImagePicture {
  picture: Picture
  tokens: readonly Token[]
  /** Weight on each token, [K]. */
  row: Float32Array | undefined
  scale: Scale
  palette: Palette
  /** Of the colours of the patches, 0 to 1; the same everywhere. */
  opacity: number
}

/** Size on screen, with the proportions kept. */
export function fitImage(
  { size: [width, height] }: Picture,
  room: { width: number; height: number },
): [number, number] {
  const factor = Math.min(room.width / width, room.height / height)
  return [Math.floor(width * factor), Math.floor(height * factor)]
}

/** The least side of an image that is drawn twice, and the space between the two. */
const LEAST_SIDE = 130
export const IMAGE_GAP = 14

interface TwoImages {
  size: [number, number]
  /** One below the other, instead of beside each other. */
  stacked: boolean
}

/** Two images are stacked only where that makes them this much larger. */
const WORTH_STACKING = 1.2

/** The size of two copies of the image, beside each other or one below the other; null if there is no room. */
export function fitTwice(picture: Picture, { width, height }: { width: number; height: number }): TwoImages | null {
  const beside = fitImage(picture, { width: (width - IMAGE_GAP) / 2, height })
  const below = fitImage(picture, { width, height: (height - IMAGE_GAP) / 2 })
  const stacked = below[0] > WORTH_STACKING * beside[0]
  const size = stacked ? below : beside
  return Math.min(...size) < LEAST_SIDE ? null : { size, stacked }
}

/** The pixels of the image at a size in device pixels. */
type Pixels = (width: number, height: number) => Uint8ClampedArray

/** The image, and nothing between its tiles and the overview beside them. */
export function paintImage(
  surface: Surface,
  [width, height]: [number, number],
  { picture, tokens }: Pick<ImagePicture, 'picture' | 'tokens'>,
  pixels: Pixels,
): void {
  const context = fitCanvas(surface, width, height)
  const ratio = ratioOf(context)
  const image = context.createImageData(Math.round(width * ratio), Math.round(height * ratio))
  image.data.set(pixels(image.width, image.height))
  const views = viewsOf(tokens).map((view) => onScreen(view, picture, image.width))
  for (let i = 0; views.length > 1 && i < image.width * image.height; i++) {
    const [x, y] = [i % image.width, Math.floor(i / image.width)]
    if (!views.some(([x0, y0, x1, y1]) => x >= x0 && x < x1 && y >= y0 && y < y1)) image.data[4 * i + 3] = 0
  }
  context.putImageData(image, 0, 0)
}

/** What the patches of an image cover: all of it, or its tiles and the overview beside them, whose patches have names of their own. */
export function viewsOf(tokens: readonly Token[]): number[][] {
  const views = new Map<boolean, number[]>()
  for (const { box, text } of tokens) {
    if (!box) continue
    const [x0, y0, x1, y1] = views.get(text.includes(':')) ?? box
    views.set(text.includes(':'), [
      Math.min(x0, box[0]),
      Math.min(y0, box[1]),
      Math.max(x1, box[2]),
      Math.max(y1, box[3]),
    ])
  }
  return [...views.values()]
}

/** The colours of the patches over the image. */
export function paintRow(surface: Surface, [width, height]: [number, number], now: ImagePicture): void {
  const context = fitCanvas(surface, width, height)
  const { picture, tokens, row, scale, palette, opacity } = now
  context.clearRect(0, 0, width, height)
  context.globalAlpha = opacity
  const table = tableFor(palette, scale.signed)
  for (const [k, { box }] of tokens.entries()) {
    const value = row?.[k] ?? Number.NaN
    if (!box || Number.isNaN(value)) continue
    const [x0, y0, x1, y1] = onScreen(box, picture, width)
    context.fillStyle = css(table[colourIndex(value, scale)])
    context.fillRect(x0, y0, x1 - x0, y1 - y0)
  }
  context.globalAlpha = 1
}

/** Frames around patches that are sinks: light within dark, to show on any image. */
export function paintSinkPatches(
  surface: Surface,
  [width, height]: [number, number],
  { picture, tokens }: Pick<ImagePicture, 'picture' | 'tokens'>,
  sinks: readonly number[],
): void {
  const context = fitCanvas(surface, width, height)
  context.clearRect(0, 0, width, height)
  for (const token of sinks) {
    const box = tokens[token].box
    if (!box) continue
    const [x0, y0, x1, y1] = onScreen(box, picture, width)
    for (const [colour, breadth] of [
      ['#000', 3],
      ['#fff', 1],
    ] as const) {
      context.strokeStyle = colour
      context.lineWidth = breadth
      context.strokeRect(x0 + 1.5, y0 + 1.5, x1 - x0 - 3, y1 - y0 - 3)
    }
  }
}

export function paintLitPatches(
  surface: Surface,
  [width, height]: [number, number],
  { picture, tokens, palette }: Pick<ImagePicture, 'picture' | 'tokens' | 'palette'>,
  lit: ReadonlySet<number>,
): void {
  const context = fitCanvas(surface, width, height)
  context.clearRect(0, 0, width, height)
  context.strokeStyle = palette.accent
  context.lineWidth = 2
  for (const token of lit) {
    const box = tokens[token]?.box
    if (!box) continue
    const [x0, y0, x1, y1] = onScreen(box, picture, width)
    context.strokeRect(x0 + 1, y0 + 1, x1 - x0 - 2, y1 - y0 - 2)
  }
}

function onScreen(box: readonly number[], { size }: Picture, width: number): number[] {
  return box.map((edge) => Math.round((edge / size[0]) * width))
}

/** The token of the patch at a point of the image on screen, or null. */
export function patchAt(
  tokens: readonly Token[],
  { size }: Picture,
  width: number,
  [x, y]: [number, number],
): number | null {
  const [px, py] = [(x / width) * size[0], (y / width) * size[0]]
  const found = tokens.findIndex(({ box }) => box && px >= box[0] && py >= box[1] && px < box[2] && py < box[3])
  return found < 0 ? null : found
}

type Direction = 'left' | 'right' | 'up' | 'down'

/** The patch next to another one in a direction: the nearest one, of those that are at least as far along it as across; itself at the edge. */
export function patchBeside(tokens: readonly Token[], from: number, direction: Direction): number {
  const centre = (token: number): [number, number] => {
    const [x0, y0, x1, y1] = tokens[token].box!
    return [(x0 + x1) / 2, (y0 + y1) / 2]
  }
  const [x, y] = centre(from)
  const sign = direction === 'left' || direction === 'up' ? -1 : 1
  let [best, least] = [from, Number.POSITIVE_INFINITY]
  for (const [token, { box }] of tokens.entries()) {
    if (!box) continue
    const [dx, dy] = [centre(token)[0] - x, centre(token)[1] - y]
    const [along, across] = direction === 'left' || direction === 'right' ? [sign * dx, dy] : [sign * dy, dx]
    if (along <= 0 || Math.abs(across) > along) continue
    const distance = along + 2 * Math.abs(across)
    if (distance < least) [best, least] = [token, distance]
  }
  return best
}

/** Patches whose centre is in a rectangle of the image on screen. */
export function patchesIn(
  tokens: readonly Token[],
  { size }: Picture,
  width: number,
  [ax, ay]: [number, number],
  [bx, by]: [number, number],
): number[] {
  const [x0, x1, y0, y1] = [Math.min(ax, bx), Math.max(ax, bx), Math.min(ay, by), Math.max(ay, by)].map(
    (edge) => (edge / width) * size[0],
  )
  return [...tokens.entries()].flatMap(([token, { box }]) => {
    if (!box) return []
    const [x, y] = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2]
    return x >= x0 && x < x1 && y >= y0 && y < y1 ? [token] : []
  })
}
