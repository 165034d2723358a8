/** A file that somebody dropped, pasted or chose: a text to read, or an image to look at. */
import { bytes } from '../text/format'

type Dropped = { text: string } | { image: string }

/** What a model takes is far less; what is larger was dropped by mistake. */
const LARGEST_TEXT = 1024 * 1024
const LARGEST_IMAGE = 10_000_000
const IMAGES = ['image/png', 'image/jpeg', 'image/webp']

/** Throws an Error whose message is the sentence to show. */
export async function readFile(file: File): Promise<Dropped> {
  if (file.type.startsWith('image/')) return { image: await readImage(file) }
  if (file.size > LARGEST_TEXT)
    throw new Error(
      `The file has ${bytes(file.size)}, and texts of up to 1 MiB are read. Cut out what you want to see.`,
    )
  return { text: decoded(await file.arrayBuffer()) }
}

function decoded(data: ArrayBuffer): string {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(data)
    if (!text.includes('\0')) return text.trimEnd()
  } catch {
    // Said below: what is not UTF-8 is not read at all rather than wrongly.
  }
  throw new Error('The file is not a plain text in UTF-8. Save it as one, or paste its text.')
}

async function readImage(file: File): Promise<string> {
  if (!IMAGES.includes(file.type)) throw new Error('Images are read as PNG, JPEG or WebP. Save it as one of these.')
  if (file.size > LARGEST_IMAGE)
    throw new Error(`The image has ${bytes(file.size)}, and up to ${bytes(LARGEST_IMAGE)} are taken. Scale it down.`)
  return dataUrl(file)
}

const dataUrl = (file: File): Promise<string> =>
  new Promise((resolve, reject) => {
    const reader = new FileReader()
    reader.onload = () => resolve(String(reader.result))
    reader.onerror = () => reject(new Error('The image could not be read from disk. Choose it again.'))
    reader.readAsDataURL(file)
  })
