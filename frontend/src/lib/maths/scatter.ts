/** A scatter of heads: its points, which of them a range or a lasso contains, their rank correlation, and the ticks of its axes. */
import type { Head } from '../data/analysis'
import { headsOf } from '../data/subset'

export interface HeadPoint extends Head {
  x: number
  y: number
}

type Numbers = readonly (readonly (number | null)[])[]
type Range = readonly [low: number, high: number]

/** The heads that have both numbers, and how many lack one. */
export function headPoints(x: Numbers, y: Numbers, heads: readonly Head[]): { points: HeadPoint[]; missing: number } {
  const points = heads.flatMap(({ layer, head }): HeadPoint[] => {
    const [at, up] = [x[layer]?.[head] ?? null, y[layer]?.[head] ?? null]
    return at === null || up === null ? [] : [{ layer, head, x: at, y: up }]
  })
  return { points, missing: heads.length - points.length }
}

/** Every head of an analysis. */
export const everyHead = (layers: number, heads: number): Head[] => {
  const count = (length: number) => Array.from({ length }, (_, i) => i)
  return headsOf({ layers: count(layers), heads: count(heads) }, false)
}

/** The span of some numbers with a margin, so that no mark is at the edge; from -1 to 1 around the number if they are equal. */
export function spanOfValues(values: readonly number[]): Range {
  if (values.length === 0) return [0, 1]
  const [low, high] = [Math.min(...values), Math.max(...values)]
  const margin = high > low ? (high - low) * 0.06 : Math.abs(low) || 1
  return [low - margin, high + margin]
}

/** Round numbers within a range, about so many. */
export function niceTicks([low, high]: Range, about = 5): number[] {
  const rough = (high - low) / about
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999) ?? 10 * power
  const first = Math.ceil(low / step - 1e-9)
  const last = Math.floor(high / step + 1e-9)
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)))
}

export const inRanges = ({ x, y }: HeadPoint, [left, right]: Range, [low, high]: Range) =>
  x >= left && x <= right && y >= low && y <= high

/** Whether a closed polygon contains a point, by the even-odd rule. */
export function insidePolygon(
  [x, y]: readonly [number, number],
  corners: readonly (readonly [number, number])[],
): boolean {
  let inside = false
  for (const [i, [x1, y1]] of corners.entries()) {
    const [x0, y0] = corners.at(i - 1)!
    if (y1 > y !== y0 > y && x < ((x0 - x1) * (y - y1)) / (y0 - y1) + x1) inside = !inside
  }
  return inside
}

/** Ranks from 1; equal values share the mean of their ranks. */
function ranksOf(values: readonly number[]): number[] {
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b])
  const ranks = new Array<number>(values.length)
  for (let from = 0; from < order.length; ) {
    let to = from
    while (to < order.length && values[order[to]] === values[order[from]]) to++
    for (let i = from; i < to; i++) ranks[order[i]] = (from + 1 + to) / 2
    from = to
  }
  return ranks
}

/** Spearman's rank correlation of both numbers; NaN if one of them is the same for all points, or there are fewer than three. */
export function rankCorrelation(points: readonly HeadPoint[]): number {
  if (points.length < 3) return Number.NaN
  const [a, b] = [ranksOf(points.map(({ x }) => x)), ranksOf(points.map(({ y }) => y))]
  const mean = (points.length + 1) / 2
  const product = (p: readonly number[], q: readonly number[]) =>
    p.reduce((sum, value, i) => sum + (value - mean) * (q[i] - mean), 0)
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b))
}

/** The points as a table of comma-separated values. */
export const scatterCsv = (points: readonly HeadPoint[], x: string, y: string): string =>
  [['layer', 'head', x, y], ...points.map((point) => [point.layer, point.head, point.x, point.y])]
    .map((row) => `${row.join(',')}\n`)
    .join('')
