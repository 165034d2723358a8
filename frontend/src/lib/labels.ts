/** Token labels along an axis: shortened to fit, thinned out where they would touch. */
/** 12 px type needs this much from line to line, or ascenders meet descenders. */
export const LABEL_HEIGHT = 14

/** Every how many tokens a label is written so that labels never overlap. */
export function labelStep(pitch: number): number {
  if (pitch >= LABEL_HEIGHT) return 1
  const needed = LABEL_HEIGHT / Math.max(pitch, 1e-6)
  return [2, 3, 5, 10, 20, 25, 50, 100, 200, 500].find((step) => step >= needed) ?? 1000
}

export function shorten(text: string, characters: number): string {
  const letters = Array.from(text)
  return letters.length <= characters ? text : `${letters.slice(0, characters - 1).join('')}\u2026`
}

/** Pixels that `characters` take in the monospace face. */
export const labelWidth = (characters: number, advance = 7.3): number => Math.ceil(characters * advance)
