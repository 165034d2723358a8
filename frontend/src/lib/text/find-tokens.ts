/** Where a text has a word, as tokens. */
import type { Token } from '../data/analysis'
import type { Span } from '../maths/highlight'
import { tokenLabel } from './labels'

/** A character in lower case, unless that has more characters. */
const lower = (character: string) => {
  const small = character.toLowerCase()
  return small.length === character.length ? small : character
}

/** The characters from which words that begin like this go on, as in the offsets of tokens. */
function placesIn(text: string, wanted: string): Span[] {
  const characters = Array.from(text, lower)
  const signs = Array.from(wanted, lower)
  const inWord = (sign: string | undefined) => sign !== undefined && /[\p{L}\p{N}]/u.test(sign)
  return characters.flatMap((first, at) => {
    if (first !== signs[0] || signs.some((sign, i) => characters[at + i] !== sign)) return []
    return inWord(first) && inWord(characters[at - 1]) ? [] : [[at, at + signs.length] as const]
  })
}

/** The tokens of each place at which words begin like this, in the order of the text; special tokens by their whole name. `texts` are those that the offsets refer to. */
export function findTokens(tokens: readonly Token[], texts: readonly string[], wanted: string): Span[] {
  if (wanted === '') return []
  const named = tokens.flatMap((token, i): Span[] =>
    token.kind === 'special' && tokenLabel(token).toLowerCase() === wanted.toLowerCase() ? [[i, i + 1]] : [],
  )
  const read = texts.flatMap((text, segment) => tokensAt(tokens, segment, placesIn(text, wanted)))
  return [...named, ...read].sort(([a], [b]) => a - b)
}

/** The tokens of ascending places in one text. */
function tokensAt(tokens: readonly Token[], segment: number, places: readonly Span[]): Span[] {
  let next = 0
  return places.flatMap(([from, to]): Span[] => {
    while (next < tokens.length && !(tokens[next].segment === segment && tokens[next].end > from)) next += 1
    let end = next
    while (end < tokens.length && tokens[end].segment === segment && tokens[end].start < to) end += 1
    return end > next ? [[next, end]] : []
  })
}
