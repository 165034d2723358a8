/** Picture files made in the page: SVG, and PNG from it. */
import { readPalette } from '../../lib/drawing/palette'
import { withResolution } from '../../lib/drawing/png'
import { figureSvg } from '../../marks/figure'
import type { Printable } from '../../marks/print'

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

export const drawFigure = (pictures: readonly Printable[], title: string, caption: readonly [string, string]): string =>
  figureSvg(pictures, title, caption, printPalette(), encode)

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
