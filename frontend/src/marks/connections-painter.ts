/** Paint a token connection graph, one curve per edge, with any layout. */

import { type DrawingContext, newPath, type Surface } from '../lib/drawing/context'
import { fitCanvas } from '../lib/drawing/frame'
import { MONO, type Palette } from '../lib/drawing/palette'
import type { Connections, Visit } from '../lib/maths/edges'
import { type GraphGeometry, tokensWithin, trace } from '../lib/maths/graph-geometry'
import { type Highlight, isNothing, litKeys, litQueries } from '../lib/maths/highlight'
import { shorten } from '../lib/text/labels'

export interface GraphLayout {
  /** Size of the viewport. */
  width: number
  height: number
  /** Space for the column titles above. */
  top: number
  /** Characters of a name in a column. */
  characters: number
  geometry: GraphGeometry
  scroll: number
}

export interface GraphPicture {
  edges: Connections
  queries: readonly string[]
  keys: readonly string[]
  /** Keys whose curves are grey, such as special tokens and sinks. */
  marked: readonly boolean[]
  /** The largest magnitude of the head, which has the strongest curve. */
  max: number
  palette: Palette
}

const BUCKETS = 6
const COMFORTABLE = 150
const GAP = 6

/** First and last (exclusive) visible token. */
export function visibleTokens({ geometry, top, width, height, scroll }: GraphLayout): [number, number] {
  return geometry.kind === 'rows'
    ? tokensWithin(geometry, scroll, width)
    : tokensWithin(geometry, scroll + top, height - top)
}

/** The visible tokens, counted from 0. */
export const partWords = ([first, last]: readonly [number, number], tokens: number): string =>
  `${first} to ${last - 1} of ${tokens}`

function prepare(canvas: Surface, { width, height, top, scroll, geometry }: GraphLayout): DrawingContext {
  const context = fitCanvas(canvas, width, height)
  context.clearRect(0, 0, width, height)
  context.lineCap = 'round'
  context.font = MONO
  context.textBaseline = 'middle'
  context.save()
  context.beginPath()
  context.rect(0, top, width, height - top)
  context.clip()
  if (geometry.kind === 'rows') context.translate(-scroll, 0)
  else context.translate(0, -scroll)
  return context
}

/** All curves between visible tokens, weak to strong. */
export function paintGraph(canvas: Surface, layout: GraphLayout, picture: GraphPicture): void {
  const context = prepare(canvas, layout)
  const [first, last] = visibleTokens(layout)
  const rows: [number, number] = [first, Math.min(last, picture.queries.length)]
  const columns: [number, number] = [first, Math.min(last, picture.keys.length)]
  // A curve that leaves the viewport adds clutter, so it is drawn only if its token is highlighted.
  strokeEdges(canvas, context, layout, picture, (visit) => picture.edges.within(rows, columns, visit))
  for (let i = first; i < last; i++) labelsOf(context, layout, picture, i, () => picture.palette.muted)
  context.restore()
}

/** The titles of the two columns; on screen they are beside the canvas. */
export function paintGraphTitles(canvas: Surface, layout: GraphLayout, { muted }: Palette): void {
  const { geometry, top } = layout
  if (geometry.kind !== 'columns') return
  const context = fitCanvas(canvas, layout.width, layout.height)
  context.font = MONO
  context.fillStyle = muted
  context.textAlign = 'right'
  context.fillText('query', geometry.queries.x[0], top - 12)
  context.textAlign = 'left'
  context.fillText('key', geometry.keys.x[0], top - 12)
}

/** The curves and names of highlighted tokens, above the pale ones. */
export function paintLitGraph(canvas: Surface, layout: GraphLayout, picture: GraphPicture, lit: Highlight): void {
  const context = prepare(canvas, layout)
  const ends = strokeLit(canvas, context, layout, picture, lit)
  const { palette } = picture
  const [first, last] = visibleTokens(layout)
  // The layer below is dimmed with its names, so these are painted again, each once.
  const held = { queries: new Set(litQueries(lit)), keys: new Set(litKeys(lit)) }
  const inkOf = (side: Side, i: number) => {
    if (held[side].has(i) || (layout.geometry.kind === 'arcs' && held.keys.has(i))) return palette.accent
    return side === 'keys' || layout.geometry.kind === 'arcs'
      ? ends.has(i)
        ? palette.ink
        : palette.muted
      : palette.muted
  }
  if (!isNothing(lit))
    for (let i = first; i < last; i++) labelsOf(context, layout, picture, i, (side) => inkOf(side, i))
  context.restore()
}

/** Stroke highlighted curves and return where they end. For a rectangle, only those within it. */
function strokeLit(
  canvas: Surface,
  context: DrawingContext,
  layout: GraphLayout,
  picture: GraphPicture,
  { queries, keys, box }: Highlight,
): Set<number> {
  const { edges } = picture
  const ends = new Set<number>()
  strokeEdges(canvas, context, layout, picture, (visit) => {
    const leading: Visit = (q, k) => {
      visit(q, k)
      ends.add(k)
    }
    for (const q of queries) edges.leaving(q, leading)
    if (box) edges.within(box.queries ?? [0, picture.queries.length], box.keys ?? [0, picture.keys.length], leading)
  })
  // In self-attention, incoming and outgoing curves must look different.
  if (layout.geometry.kind === 'arcs') context.setLineDash([1, 4])
  strokeEdges(canvas, context, layout, picture, (visit) => {
    for (const k of keys) edges.arriving(k, visit)
  })
  context.setLineDash([])
  return ends
}

/** Thousands of curves in a dozen strokes: edges are bucketed by strength, and each bucket is one path. */
function strokeEdges(
  canvas: Surface,
  context: DrawingContext,
  { geometry }: GraphLayout,
  { edges, max, palette, marked }: GraphPicture,
  each: (visit: Visit) => void,
): void {
  const paths: (Path2D | undefined)[] = new Array(3 * BUCKETS)
  const thickest = geometry.kind === 'columns' ? Math.min(3, Math.max(1, geometry.pitch / 10)) : 2.5
  let count = 0
  each((q, k) => {
    const weight = edges.weight(q, k)
    const strength = Math.sqrt(Math.abs(weight) / (max || 1))
    const colour = marked[k] ? 2 : weight < 0 ? 1 : 0
    const bucket = Math.min(BUCKETS - 1, Math.floor(strength * BUCKETS)) + colour * BUCKETS
    const path = paths[bucket] ?? newPath(canvas)
    paths[bucket] = path
    count += 1
    trace(path, geometry, q, k)
  })
  // Many curves are drawn paler, or a broad head would be one blot.
  const ease = Math.min(1, Math.sqrt(COMFORTABLE / Math.max(1, count)))
  const colours = [palette.more, palette.less, palette.muted]
  paths.forEach((path, bucket) => {
    if (!path) return
    const colour = Math.floor(bucket / BUCKETS)
    const strength = ((bucket % BUCKETS) + 1) / BUCKETS
    context.strokeStyle = colours[colour]
    context.globalAlpha = (0.24 + 0.76 * strength ** 2) * ease * (colour === 2 ? 0.4 : 1)
    context.lineWidth = 0.6 + (colour === 2 ? 0.4 : thickest * strength ** 2)
    context.stroke(path)
  })
  context.globalAlpha = 1
}

type Side = 'queries' | 'keys'

function labelsOf(
  context: DrawingContext,
  layout: GraphLayout,
  picture: GraphPicture,
  token: number,
  ink: (side: Side) => string,
): void {
  // A running text is painted once.
  const sides: Side[] = layout.geometry.kind === 'arcs' ? ['queries'] : ['queries', 'keys']
  for (const side of sides) if (token < picture[side].length) labelOf(context, layout, picture, side, token, ink(side))
}

function labelOf(
  context: DrawingContext,
  layout: GraphLayout,
  picture: GraphPicture,
  side: Side,
  token: number,
  ink: string,
): void {
  const { geometry, characters } = layout
  const { x, y, half } = geometry[side]
  const label = picture[side][token]
  if (geometry.kind === 'columns') {
    context.fillStyle = ink
    context.textAlign = side === 'queries' ? 'right' : 'left'
    context.fillText(shorten(label, characters), x[token], y[token] + 0.5)
    return
  }
  // Names have a background, as curves from other lines may pass behind them.
  context.fillStyle = picture.palette.paper
  context.globalAlpha = 0.8
  context.fillRect(x[token] - half[token] + GAP / 2, y[token] - 8, 2 * half[token] - GAP, 16)
  context.globalAlpha = 1
  context.fillStyle = ink
  context.textAlign = 'center'
  context.fillText(label, x[token], y[token] + 0.5)
}
