/** Whether a text is short enough to be analysed while it is typed. */

/** About 64 tokens. */
const MOST_PIECES = 60
/** Letters of one piece of a word, as tokenizers cut them on average, the longest words included. */
const LETTERS = 7

/** Words in their pieces, signs, and letters of scripts that are written without spaces, one each. */
export function pieces(text: string): number {
  let count = 0
  for (const [run] of text.matchAll(
    /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|[\p{L}\p{N}\p{M}]+|[^\s\p{L}\p{N}\p{M}]/gu,
  )) {
    count += Math.ceil(run.length / LETTERS)
  }
  return count
}

export const isShort = (text: string, pair: string) => pieces(text) + pieces(pair) <= MOST_PIECES
