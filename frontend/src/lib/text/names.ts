/** Names of tokens in sentences: repeated words carry their position, and right-to-left ones do not reorder the words around them. */

/** A title within a phrase: `gradient × attention`, but `ALTI-Logit`. */
export const inPhrase = (title: string): string => title.replace(/^\p{Lu}(?=\p{Ll})/u, (letter) => letter.toLowerCase())

/** Letters that run from right to left, and signs that change the direction. */
const TURNS =
  /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u

/** The text between isolates, if it could reorder what is around it. */
export const isolate = (text: string) => (TURNS.test(text) ? `\u2068${text}\u2069` : text)

const subscript = (position: number) =>
  String(position).replace(/\d/g, (digit) => String.fromCharCode(0x2080 + Number(digit)))

/** What names need of an axis of tokens or words. */
interface Places {
  labels: readonly string[]
  /** The first token of each place. */
  start: ArrayLike<number>
}

const counted = new WeakMap<readonly string[], ReadonlyMap<string, number>>()

/** How often each label occurs. */
function countsOf(labels: readonly string[]): ReadonlyMap<string, number> {
  const known = counted.get(labels)
  if (known) return known
  const counts = new Map<string, number>()
  for (const label of labels) counts.set(label, (counts.get(label) ?? 0) + 1)
  counted.set(labels, counts)
  return counts
}

const isRepeated = (labels: readonly string[], place: number) => (countsOf(labels).get(labels[place]) ?? 0) > 1

/** `the₁₂` if the word occurs more than once, otherwise `the`. The position is that of its first token, counted from 0. */
export function placeName({ labels, start }: Places, place: number): string {
  const label = labels[place]
  return isolate(isRepeated(labels, place) ? `${label}${subscript(start[place])}` : label)
}

/** `“the” (#12)` if the word occurs more than once, otherwise `“the”`. */
export function quotedPlace({ labels, start }: Places, place: number): string {
  const quoted = isolate(`\u201c${labels[place]}\u201d`)
  return isRepeated(labels, place) ? `${quoted} (#${start[place]})` : quoted
}
