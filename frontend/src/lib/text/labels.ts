/** Token labels: whitespace made visible, shortened to fit, thinned out where they would overlap. */
import type { Token } from '../data/analysis'

/** The least line height of 12 px type at which ascenders and descenders do not touch. */
export const LABEL_HEIGHT = 14

/** The step at which labels do not overlap. */
export function labelStep(pitch: number): number {
  if (pitch >= LABEL_HEIGHT) return 1
  const needed = LABEL_HEIGHT / Math.max(pitch, 1e-6)
  return [2, 3, 5, 10, 20, 25, 50, 100, 200, 500].find((step) => step >= needed) ?? 1000
}

/** A token's text with whitespace made visible. */
export function tokenLabel(token: Token | undefined): string {
  if (!token) return '?'
  const text = token.text.replaceAll('\n', '\u21b5').replaceAll('\t', '\u21e5')
  return text.trim() === '' ? '\u2423' : text
}

export function shorten(text: string, characters: number): string {
  const letters = Array.from(text)
  return letters.length <= characters ? text : `${letters.slice(0, characters - 1).join('')}\u2026`
}

/** Pixels that `characters` take in the monospace face. */
export const labelWidth = (characters: number, advance = 7.3): number => Math.ceil(characters * advance)

/** Chinese, Japanese and Korean characters and emoji, which are two letters wide. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f000}-\u{1faff}\u{20000}-\u{3fffd}]/u

/** Pixels that a label takes in the monospace face. */
export const textWidth = (text: string, advance = 7.3): number =>
  Array.from(text).reduce((sum, sign) => sum + (WIDE.test(sign) ? 12.5 : advance), 0)

/** Whether most of a text is in a script without spaces between words, whose characters are as wide as high. */
export function isWide(labels: readonly string[]): boolean {
  const signs = labels.join('')
  const letters = Array.from(signs).filter((sign) => /\p{L}/u.test(sign))
  return letters.length > 0 && letters.filter((sign) => WIDE.test(sign)).length > letters.length / 2
}
