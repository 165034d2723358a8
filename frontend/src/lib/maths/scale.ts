/** Map values to 256 colours. Unsigned maps use 0..255; signed maps are centred, 128 is exactly 0. */
export type ScaleKind = 'linear' | 'sqrt' | 'log'
/** What the last colour stands for: the largest magnitude of the head, of the row, of all heads, or of the visible part of the map. */
export type Range = 'head' | 'row' | 'all' | 'visible'
export interface Scale {
  kind: ScaleKind
  signed: boolean
  /** The largest magnitude shown; larger ones get the last colour. */
  max: number
}

/** The logarithmic scale spans four decades; smaller values count as zero. */
const DECADES = 4

export function strength(fraction: number, kind: ScaleKind): number {
  const f = Math.min(1, Math.max(0, fraction))
  if (kind === 'linear') return f
  if (kind === 'sqrt') return Math.sqrt(f)
  return f === 0 ? 0 : Math.max(0, 1 + Math.log10(f) / DECADES)
}

export function inverse(position: number, kind: ScaleKind): number {
  if (kind === 'linear') return position
  if (kind === 'sqrt') return position * position
  return position === 0 ? 0 : 10 ** ((position - 1) * DECADES)
}

export function colourIndex(value: number, scale: Scale): number {
  const s = scale.max === 0 ? 0 : strength(Math.abs(value) / scale.max, scale.kind)
  if (!scale.signed) return Math.round(255 * s)
  return value < 0 ? 128 - Math.round(127 * s) : 128 + Math.round(127 * s)
}

interface Tick {
  /** Position along the legend, 0..1. */
  at: number
  value: number
}

/** Numbers below the legend: the ends and the middle, which is zero for a signed map. */
export function ticks(scale: Scale): Tick[] {
  const value = (at: number) => scale.max * inverse(at, scale.kind)
  if (scale.signed) return [-1, 0, 1].map((side) => ({ at: 0.5 + side / 2, value: side * scale.max }))
  return [0, 0.5, 1].map((at) => ({ at, value: value(at) }))
}

export const SCALE_WORDS: Record<ScaleKind, string> = {
  linear: 'linear',
  sqrt: 'square root',
  log: 'logarithmic, four decades',
}
