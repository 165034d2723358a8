/** A dropped, pasted or chosen file: a text to read, or an image. */
import { bytes } from '../text/format'

type FileContent = { text: string } | { image: string }

/** Models take far less; a larger file was dropped by mistake. */
const LARGEST_TEXT = 1024 * 1024
const LARGEST_IMAGE = 10_000_000
const IMAGES = ['image/png', 'image/jpeg', 'image/webp']

/** Throws an Error whose message is shown to the reader. */
export async function readFile(file: File): Promise<FileContent> {
  if (file.type.startsWith('image/')) return { image: await readImage(file) }
  if (file.size > LARGEST_TEXT)
    throw new Error(
      `The file has ${bytes(file.size)}; texts may have up to 1 MiB. Cut out the part you want to analyse.`,
    )
  return { text: decoded(await file.arrayBuffer()) }
}

function decoded(data: ArrayBuffer): string {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(data)
    if (!text.includes('\0')) return text.trimEnd()
  } catch {
    // Handled below: anything but UTF-8 is rejected instead of decoded wrongly.
  }
  throw new Error('The file is not plain UTF-8 text. Save it as UTF-8, or paste its text.')
}

async function readImage(file: File): Promise<string> {
  if (!IMAGES.includes(file.type))
    throw new Error('Images must be PNG, JPEG or WebP. Convert the image to one of these.')
  if (file.size > LARGEST_IMAGE)
    throw new Error(`The image has ${bytes(file.size)}; images may have up to ${bytes(LARGEST_IMAGE)}. Scale it down.`)
  return dataUrl(file)
}

/** An image of the server, as a data URL. */
export const downloadImage = async (url: string): Promise<string> => dataUrl(await (await download(url)).blob())

/** A text of the server. */
export const downloadText = async (url: string): Promise<string> => (await (await download(url)).text()).trimEnd()

async function download(url: string): Promise<Response> {
  const response = await fetch(url)
  if (!response.ok) throw new Error(`${response.status}`)
  return response
}

const dataUrl = (file: Blob): Promise<string> =>
  new Promise((resolve, reject) => {
    const reader = new FileReader()
    reader.onload = () => resolve(String(reader.result))
    reader.onerror = () => reject(new Error('The image could not be read from disk. Choose it again.'))
    reader.readAsDataURL(file)
  })
