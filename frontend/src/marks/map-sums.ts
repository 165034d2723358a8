/** The sums of a long map over everything, as bars along its sides: what each key receives, and what each query gives. */
import type { DrawingContext } from '../lib/drawing/context'
import type { Sums } from '../lib/maths/matrix'
import { cellSpans } from '../lib/maths/raster'
import type { MapLayout, MapPicture } from './map-picture'

/** Between the map and its sums. */
const GAP = 4
/** Sums that differ less than this, as a share of the largest, are the same for the eye: the rows of weights add up to 1. */
const LEAST_SPREAD = 0.01

/** The lengths of bars, 0 to 1, one per pixel. A sink receives thousands of times as much as other keys, so they grow with the logarithm. */
export function barLengths(sums: Float32Array, start: number, size: number, pixels: number): Float32Array {
  const spans = cellSpans(sums.length, pixels, start, size)
  const longest = Math.log1p(largest(sums, 0, sums.length)) || 1
  return Float32Array.from(
    { length: pixels },
    (_, x) => Math.log1p(largest(sums, spans[2 * x], spans[2 * x + 1])) / longest,
  )
}

function largest(sums: Float32Array, from: number, to: number): number {
  let most = 0
  for (let i = from; i < to; i++) if (sums[i] > most) most = sums[i]
  return most
}

function areEqual(sums: Float32Array): boolean {
  let least = Number.POSITIVE_INFINITY
  for (const sum of sums) if (sum < least) least = sum
  const most = largest(sums, 0, sums.length)
  return most - least <= LEAST_SPREAD * most
}

export function paintSums(
  context: DrawingContext,
  layout: MapLayout,
  { window, palette }: MapPicture,
  { queries, keys }: Sums,
): void {
  const { left, top, side, sums = 0 } = layout
  const thick = sums - GAP
  if (thick <= 0) return
  context.fillStyle = palette.more
  for (const [x, length] of barLengths(keys, window.left, window.size, side).entries())
    context.fillRect(left + x, top + side + GAP, 1, length * thick)
  if (areEqual(queries)) return
  for (const [y, length] of barLengths(queries, window.top, window.size, side).entries())
    context.fillRect(left + side + GAP, top + y, length * thick, 1)
}
