/** Whether a text is short enough for live analysis. */

/** About 64 tokens. */
const MOST_PIECES = 60
/** The average length of a subword piece, long words included. */
const LETTERS = 7

/** Count subword pieces, punctuation, and characters of scripts without spaces. */
export function countPieces(text: string): number {
  let count = 0
  for (const [run] of text.matchAll(
    /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{N}\p{M}]+|[^\s\p{L}\p{N}\p{M}]/gu,
  )) {
    count += Math.ceil(run.length / LETTERS)
  }
  return count
}

/** The beginning of a text, up to a number of bytes in UTF-8 and the end of a word, if there is one. */
export function beginning(text: string, bytes: number): string {
  const data = new TextEncoder().encode(text)
  if (data.length <= bytes) return text
  const cut = new TextDecoder().decode(data.slice(0, bytes)).replace(/\ufffd+$/, '')
  return cut.replace(/\s+\S*$/, '') || cut
}

export const isShort = (text: string, pair: string) => countPieces(text) + countPieces(pair) <= MOST_PIECES
