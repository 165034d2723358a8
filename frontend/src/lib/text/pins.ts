/** Pinned tokens and zoomed windows as text in the address. Tokens are counted from 0. */
import { type Box, type Highlight, NOTHING, type Span } from '../maths/highlight'
import { WHOLE, type Window } from '../maths/raster'

/** More than any model reads. */
const MOST = 65_536
/** `q3` is a pinned query, `k0-4` are five pinned keys, and `Q3-6 K0-4` is a rectangle. */
const PART = /^([qkQK])(\d{1,5})(?:-(\d{1,5}))?$/

export function writePins({ queries, keys, box }: Highlight): string {
  const side = (letter: string, span: Span | null) => (span ? [`${letter}${spanText(span)}`] : [])
  return [
    ...runs(queries).map((span) => `q${spanText(span)}`),
    ...runs(keys).map((span) => `k${spanText(span)}`),
    ...(box ? [...side('Q', box.queries), ...side('K', box.keys)] : []),
  ].join(' ')
}

const spanText = ([from, to]: Span) => (to === from + 1 ? `${from}` : `${from}-${to - 1}`)

/** Neighbours in ascending order as one span. */
function runs(tokens: readonly number[]): Span[] {
  const found: [number, number][] = []
  for (const token of tokens) {
    const last = found.at(-1)
    if (last && last[1] === token) last[1] += 1
    else found.push([token, token + 1])
  }
  return found
}

/** Unknown parts are ignored. */
export function parsePins(text: string): Highlight {
  const lit = { q: new Set<number>(), k: new Set<number>() }
  const box: { Q: Span | null; K: Span | null } = { Q: null, K: null }
  for (const part of text.split(' ')) {
    const match = PART.exec(part)
    if (!match) continue
    const span: Span = [Number(match[2]), Number(match[3] ?? match[2]) + 1]
    const letter = match[1] as 'q' | 'k' | 'Q' | 'K'
    if (span[1] <= span[0] || span[1] > MOST) continue
    if (letter === 'Q' || letter === 'K') box[letter] = span
    else for (let token = span[0]; token < span[1]; token++) lit[letter].add(token)
  }
  const { Q, K } = box
  return { queries: [...lit.q], keys: [...lit.k], box: Q || K ? { queries: Q, keys: K } : null }
}

/** The part of a highlight that a map of so many queries and keys has. */
export function clipPins(pins: Highlight, [queries, keys]: readonly [number, number]): Highlight {
  const [left, right] = [pins.queries.filter((q) => q < queries), pins.keys.filter((k) => k < keys)]
  const clip = (span: Span | null, count: number): Span | null => span && [span[0], Math.min(count, span[1])]
  const box: Box | null = pins.box && { queries: clip(pins.box.queries, queries), keys: clip(pins.box.keys, keys) }
  const empty = box && [box.queries, box.keys].some((span) => span !== null && span[1] <= span[0])
  return left.length + right.length === 0 && (box === null || empty)
    ? NOTHING
    : { queries: left, keys: right, box: empty ? null : box }
}

/** `left top size` in fractions of the map; empty for the whole map. */
export function writeZoom({ left, top, size }: Window): string {
  return size === 1 ? '' : [left, top, size].map((value) => Number(value.toFixed(5))).join(' ')
}

export function parseZoom(text: string): Window {
  const numbers = text.split(' ').map(Number)
  const [left, top, size] = numbers
  if (text === '' || numbers.length !== 3 || numbers.some(Number.isNaN) || size <= 0 || size >= 1) return WHOLE
  const clamp = (value: number) => Math.min(1 - size, Math.max(0, value))
  return { left: clamp(left), top: clamp(top), size }
}
