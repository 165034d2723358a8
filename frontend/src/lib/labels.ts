/** Token labels along an axis: shortened to fit, thinned out where they would touch. */
export const LABEL_HEIGHT = 11

/** Every how many tokens a label is written so that labels never overlap. */
export function labelStep(pitch: number): number {
  if (pitch >= LABEL_HEIGHT) return 1
  const needed = LABEL_HEIGHT / Math.max(pitch, 1e-6)
  return [2, 5, 10, 20, 25, 50, 100, 200, 500].find((step) => step >= needed) ?? 1000
}

export function shorten(text: string, characters: number): string {
  const letters = Array.from(text)
  return letters.length <= characters ? text : `${letters.slice(0, characters - 1).join('')}\u2026`
}

/** Pixels the longest label takes in the monospace face, within `limit` characters. */
export function labelWidth(labels: readonly string[], limit: number, advance = 7.3): number {
  const longest = labels.reduce((most, label) => Math.max(most, Array.from(label).length), 1)
  return Math.ceil(Math.min(longest, limit) * advance)
}
