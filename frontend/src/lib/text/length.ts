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

export const isShort = (text: string, pair: string) => countPieces(text) + countPieces(pair) <= MOST_PIECES
