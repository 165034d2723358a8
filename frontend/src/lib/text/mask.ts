/** Tokens that are replaced by the mask token: as text in the address, and in words. */
import type { Analysis } from '../data/analysis'
import { isolate } from './names'

/** More than any model reads. */
const MOST = 65_536

export const writeMask = (tokens: readonly number[]): string => [...tokens].sort((a, b) => a - b).join(',')

/** Unknown parts are ignored. */
export function parseMask(text: string): number[] {
  const tokens = text
    .split(',')
    .flatMap((part) => (/^\d{1,5}$/.test(part) && Number(part) < MOST ? [Number(part)] : []))
  return [...new Set(tokens)].sort((a, b) => a - b)
}

/** What the text has in place of a token, masked or not; empty for special tokens and token ids. */
export function wordAt({ tokens, text, textPair }: Analysis, token: number): string {
  const { segment, start, end } = tokens[token]
  // Offsets count characters, not UTF-16 units.
  return Array.from(segment === 1 ? textPair : text)
    .slice(start, end)
    .join('')
}

/** Such as `masked: 2 “cat”`; empty if no token is. */
export function maskSentence(analysis: Analysis): string {
  const named = analysis.mask.map((token) => {
    const word = wordAt(analysis, token)
    return word ? `${token} ${isolate(`\u201c${word}\u201d`)}` : `${token}`
  })
  return named.length > 0 ? `masked: ${named.join(', ')}` : ''
}
