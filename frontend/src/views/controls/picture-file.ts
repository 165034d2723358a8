/** Picture files made in the page: SVG, and PNG from it. */
import type { Analysis } from '../../lib/data/analysis'
import { readPalette } from '../../lib/drawing/palette'
import { withResolution } from '../../lib/drawing/png'
import { sourceOf } from '../../lib/text/caption'
import { figureSvg } from '../../marks/figure'
import { type Group, printables } from '../../marks/print'

const DPI = 300
const SCREEN_DPI = 96
/** The largest PNG, in pixels: larger canvases silently stay blank. */
const MOST_PIXELS = 100e6

/** Figures are light, whatever the theme. */
function printPalette() {
  const element = document.createElement('span')
  element.className = 'print'
  document.body.append(element)
  const palette = readPalette(element)
  element.remove()
  return palette
}

function encode(image: ImageData): string {
  const canvas = document.createElement('canvas')
  canvas.width = image.width
  canvas.height = image.height
  canvas.getContext('2d')!.putImageData(image, 0, 0)
  return canvas.toDataURL('image/png')
}

/** What is on screen of an analysis, as SVG. `name` is what the caption calls it. */
export function drawFigure(group: Group, name: string, caption: string, analysis: Analysis): string {
  const pictures = printables(group)
  if (pictures.length === 0) throw new Error('it is not on screen yet. Try again in a moment.')
  return figureSvg(pictures, `Headscope: ${name}`, [caption, sourceOf(analysis)], printPalette(), encode)
}

export const pictureFile = async (svg: string, format: 'svg' | 'png'): Promise<Blob> =>
  format === 'svg' ? new Blob([svg], { type: 'image/svg+xml' }) : toPng(svg)

/** The name of a file about an analysis, without the extension. */
export const fileStem = (what: string, { id }: Analysis): string =>
  `headscope-${what.replaceAll(/[^\w.]+/g, '-')}-${id.slice(0, 8)}`

/** Why a file could not be created. */
export const fileProblem = (what: string, reason: unknown): string =>
  `${what} could not be created: ${reason instanceof Error ? reason.message : 'the browser failed'}`

/** The SVG at 300 dots per inch, or as many as a canvas can have. */
export async function toPng(svg: string): Promise<Blob> {
  const address = URL.createObjectURL(new Blob([svg], { type: 'image/svg+xml' }))
  try {
    const image = new Image()
    image.src = address
    await image.decode()
    const { naturalWidth: width, naturalHeight: height } = image
    const ratio = Math.min(DPI / SCREEN_DPI, Math.sqrt(MOST_PIXELS / (width * height)))
    const canvas = document.createElement('canvas')
    canvas.width = Math.round(width * ratio)
    canvas.height = Math.round(height * ratio)
    canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height)
    const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, 'image/png'))
    if (!blob) throw new Error('This browser cannot create a PNG of that size. Download the SVG instead.')
    const bytes = withResolution(new Uint8Array(await blob.arrayBuffer()), ratio * SCREEN_DPI)
    return new Blob([bytes], { type: 'image/png' })
  } finally {
    URL.revokeObjectURL(address)
  }
}

export function saveFile(file: Blob, name: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(file)
  link.download = name
  link.click()
  // The browser has started to read it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}
