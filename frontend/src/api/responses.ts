/** Responses in an exported page: base64 of gzip, in elements that browsers do not execute; `others` has those that the page does not contain. */
import type { Responses } from './file'

export const readResponses =
  (page: Document, others: Responses = async () => undefined): Responses =>
  async (path) => {
    // Compared rather than selected, so that no name is ever parsed as a selector.
    const element = [...page.querySelectorAll<HTMLScriptElement>('script[data-answer]')].find(
      ({ dataset }) => dataset.answer === path,
    )
    return element ? unpack(element.textContent) : others(path)
  }

export async function unpack(base64: string): Promise<ArrayBuffer> {
  const letters = atob(base64)
  const bytes = new Uint8Array(letters.length)
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i)
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer()
}
