/** Layout of a connection graph: positions of tokens and paths of curves, in pixels of the whole drawing. */

import type { DrawingContext } from '../drawing/context'
import { LABEL_HEIGHT, textWidth } from '../text/labels'

/** Two columns of tokens, two rows of them, or one running text with arcs. */
export type GraphKind = 'columns' | 'rows' | 'arcs'

/** The centre of each token; curves end at its edge. */
export interface Places {
  x: Float32Array
  y: Float32Array
  /** Half the width of the clickable area, and half its height. */
  half: Float32Array
  reach: number
}

export interface GraphGeometry {
  kind: GraphKind
  /** The size of the whole drawing, which may exceed its viewport. */
  width: number
  height: number
  queries: Places
  keys: Places
  /** Space between rows of a column. */
  pitch: number
  /** The largest height of an arc above its line. */
  rise: number
}

const GAP = 6
/** Half the height of a token in a line. */
const HALF = 9
const SPACE = 10

interface Frame {
  width: number
  height: number
}

/** Two columns, queries left and keys right; `top` and `pitch` may match a map beside it. */
export function columns(
  [queries, keys]: [number, number],
  { width, top, pitch, column }: { width: number; top: number; pitch: number; column: number },
): GraphGeometry {
  const side = (count: number, x: number): Places => ({
    x: new Float32Array(count).fill(x),
    y: Float32Array.from({ length: count }, (_, i) => top + (i + 0.5) * pitch),
    half: new Float32Array(count).fill(width),
    reach: pitch / 2,
  })
  const height = top + Math.max(queries, keys) * pitch
  return {
    kind: 'columns',
    width,
    height,
    queries: side(queries, column),
    keys: side(keys, width - column),
    pitch,
    rise: 0,
  }
}

const MOST_ROWS = 260

/** Two rows, queries above keys: for texts whose tokens are one or two characters. */
export function rows(
  queries: readonly string[],
  keys: readonly string[],
  { width, height: room }: Frame,
): GraphGeometry {
  const height = Math.min(room, MOST_ROWS)
  const widths = (labels: readonly string[]) => labels.map((label) => Math.max(LABEL_HEIGHT, textWidth(label) + SPACE))
  const both = [widths(queries), widths(keys)]
  // In self-attention a token is directly above itself.
  const pair = queries === keys ? [both[0], both[0]] : both
  const need = Math.max(...pair.map((side) => side.reduce((sum, w) => sum + w, 0)))
  const stretch = Math.min(2.5, Math.max(1, width / need))
  const row = (sizes: number[], y: number): Places => {
    let x = 0
    const middles = sizes.map((w) => {
      x += w * stretch
      return x - (w * stretch) / 2
    })
    const half = Float32Array.from(sizes, (w) => (w * stretch) / 2)
    return { x: Float32Array.from(middles), y: new Float32Array(sizes.length).fill(y), half, reach: height }
  }
  const wide = Math.ceil(need * stretch)
  return {
    kind: 'rows',
    width: Math.max(wide, 1),
    height,
    queries: row(pair[0], HALF + 2),
    keys: row(pair[1], height - HALF - 2),
    pitch: height,
    rise: 0,
  }
}

const LEAST_LINE = 68
const MOST_LINE = 300

/** The running text, wrapped into lines; `ahead` leaves room below for arcs to later tokens. */
export function arcs(labels: readonly string[], { width, height }: Frame, ahead: boolean): GraphGeometry {
  const lines: number[] = []
  const x = new Float32Array(labels.length)
  const half = new Float32Array(labels.length)
  let [line, at] = [0, GAP]
  labels.forEach((label, i) => {
    const wide = Math.min(width - 2 * GAP, textWidth(label) + SPACE)
    if (at + wide > width - GAP && at > GAP) [line, at] = [line + 1, GAP]
    x[i] = at + wide / 2
    half[i] = wide / 2
    lines.push(line)
    at += wide
  })
  const pitch = Math.min(MOST_LINE, Math.max(LEAST_LINE, Math.floor(height / (line + 1))))
  const base = ahead ? pitch / 2 : pitch - HALF - 2
  const y = Float32Array.from(lines, (number) => number * pitch + base)
  const places = { x, y, half, reach: HALF + 5 }
  const rise = ahead ? pitch / 2 - HALF - 3 : pitch - 2 * HALF - 5
  return { kind: 'arcs', width, height: (line + 1) * pitch, queries: places, keys: places, pitch, rise }
}

/** First and last (exclusive) token within a viewport, given its left or top edge and its length. */
export function tokensWithin({ kind, queries, keys }: GraphGeometry, from: number, length: number): [number, number] {
  const across = kind === 'rows'
  const longer = queries.x.length >= keys.x.length ? queries : keys
  const places = across ? longer.x : longer.y
  const slack = (i: number) => (across ? longer.half[i] : HALF)
  let first = 0
  while (first < places.length && places[first] + slack(first) < from) first++
  let last = first
  while (last < places.length && places[last] - slack(last) < from + length) last++
  return [first, last]
}

/** Trace the curve from a query to a key. In a running text it passes above if the key is earlier, and below if it is later. */
export function trace(
  context: Pick<DrawingContext, 'moveTo' | 'bezierCurveTo'>,
  geometry: GraphGeometry,
  q: number,
  k: number,
): void {
  const { kind, queries, keys } = geometry
  const [x0, y0, x1, y1] = [queries.x[q], queries.y[q], keys.x[k], keys.y[k]]
  if (kind === 'columns') {
    const bend = (x1 - x0) / 2
    context.moveTo(x0 + GAP, y0)
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - GAP, y1)
  } else if (kind === 'rows') {
    const [top, bottom] = [y0 + HALF, y1 - HALF]
    context.moveTo(x0, top)
    context.bezierCurveTo(x0, (top + bottom) / 2, x1, (top + bottom) / 2, x1, bottom)
  } else arc(context, [x0, y0], [x1, y1], k <= q, geometry.rise)
}

function arc(
  context: Pick<DrawingContext, 'moveTo' | 'bezierCurveTo'>,
  [x0, y0]: [number, number],
  [x1, y1]: [number, number],
  back: boolean,
  room: number,
): void {
  const up = back ? -1 : 1
  if (y0 !== y1) {
    // Between lines: out of the text on one side and into it on the other.
    const [from, to] = [y0 + up * HALF, y1 - up * HALF]
    context.moveTo(x0, from)
    context.bezierCurveTo(x0, (from + to) / 2, x1, (from + to) / 2, x1, to)
    return
  }
  const reach = Math.abs(x1 - x0)
  // A cubic curve rises to three quarters of its handles.
  const rise = Math.min(room, 7 + reach * 0.4) * (4 / 3)
  const spread = reach === 0 ? 4 : 0
  context.moveTo(x0 - spread, y0 + up * HALF)
  context.bezierCurveTo(
    x0 - spread,
    y0 + up * (HALF + rise),
    x1 + spread,
    y1 + up * (HALF + rise),
    x1 + spread,
    y1 + up * HALF,
  )
}

/** What is at a point of the drawing: a query, a key, or both in a running text. */
export function tokenAt(geometry: GraphGeometry, px: number, py: number): [query: number | null, key: number | null] {
  const { kind, queries, keys, width, height } = geometry
  if (kind === 'columns') return px < width / 2 ? [nearest(queries, px, py), null] : [null, nearest(keys, px, py)]
  if (kind === 'rows') return py < height / 2 ? [nearest(queries, px, py), null] : [null, nearest(keys, px, py)]
  const token = nearest(queries, px, py)
  return [token, token]
}

/** The token whose cell contains the point; in rows and columns, cells extend to the edge of the drawing. */
function nearest({ x, y, half, reach }: Places, px: number, py: number): number | null {
  for (let i = 0; i < x.length; i++) if (Math.abs(py - y[i]) <= reach && Math.abs(px - x[i]) <= half[i]) return i
  return null
}
