/** Paints the connection graph: queries on the left, keys on the right, one curve per edge. */
import type { Edges } from '../lib/edges'
import { fitCanvas } from '../lib/frame'
import { shorten } from '../lib/labels'
import { MONO, type Palette } from '../lib/palette'
import { newPath, type Pen, type Surface } from '../lib/pen'

export interface GraphLayout {
  width: number
  height: number
  /** First token's row starts here; column titles stand above it. */
  top: number
  pitch: number
  /** Width of a column of tokens. */
  column: number
  characters: number
  scroll: number
}

export interface GraphPicture {
  edges: Edges
  byKey: { start: Int32Array; order: Int32Array }
  queries: readonly string[]
  keys: readonly string[]
  /** Largest magnitude of the head: gives the strongest curve. */
  max: number
  palette: Palette
}

export interface LitGraph {
  queries: readonly number[]
  keys: readonly number[]
}

const BUCKETS = 6
const COMFORTABLE = 150
const GAP = 6

/** Rows that the longer of the two columns takes. */
export const rowsOf = ({ queries, keys }: Pick<GraphPicture, 'queries' | 'keys'>) =>
  Math.max(queries.length, keys.length)

export const rowY = (token: number, { top, pitch, scroll }: GraphLayout) => top + (token + 0.5) * pitch - scroll

/** First and last (exclusive) token on screen. */
export function visible({ top, pitch, height, scroll }: GraphLayout, count: number): [number, number] {
  return [Math.max(0, Math.floor((scroll - 1) / pitch)), Math.min(count, Math.ceil((scroll + height - top) / pitch))]
}

function prepare(canvas: Surface, { width, height }: GraphLayout): Pen {
  const context = fitCanvas(canvas, width, height)
  context.clearRect(0, 0, width, height)
  context.lineCap = 'round'
  context.font = MONO
  context.textBaseline = 'middle'
  return context
}

/** All curves that leave a visible query, pale to strong. */
export function paintGraph(canvas: Surface, layout: GraphLayout, picture: GraphPicture): void {
  const context = prepare(canvas, layout)
  const [first, last] = visible(layout, rowsOf(picture))
  const { start, key } = picture.edges
  clipToRows(context, layout)
  // A curve that leaves the screen says little and hides much: those wait until their token is pointed at.
  strokeEdges(canvas, context, layout, picture, (visit) => {
    for (let e = start[Math.min(first, picture.queries.length)]; e < start[Math.min(last, picture.queries.length)]; e++)
      if (key[e] >= first && key[e] < last) visit(e)
  })
  context.restore()
  context.fillStyle = picture.palette.muted
  for (let i = first; i < last; i++) labelsOf(context, layout, picture, i)
}

/** The curves and names of what is lit, drawn over the pale ones. */
export function paintLitGraph(canvas: Surface, layout: GraphLayout, picture: GraphPicture, lit: LitGraph): void {
  const context = prepare(canvas, layout)
  const { edges, byKey, palette, queries, keys } = picture
  const ends = new Set<number>()
  clipToRows(context, layout)
  strokeEdges(canvas, context, layout, picture, (visit) => {
    for (const q of lit.queries) {
      for (let e = edges.start[q]; e < edges.start[q + 1]; e++) {
        visit(e)
        ends.add(edges.key[e])
      }
    }
    for (const k of lit.keys) {
      for (let i = byKey.start[k]; i < byKey.start[k + 1]; i++) visit(byKey.order[i])
    }
  })
  context.restore()
  const [first, last] = visible(layout, rowsOf(picture))
  const inside = (i: number) => i >= first && i < last
  // The pale layer below is dimmed, names included: they are written again at full strength.
  context.fillStyle = palette.muted
  if (lit.queries.length + lit.keys.length > 0) for (let i = first; i < last; i++) labelsOf(context, layout, picture, i)
  context.fillStyle = palette.ink
  for (const k of ends) if (inside(k)) keyLabel(context, layout, keys[k], k)
  context.fillStyle = palette.accent
  for (const q of lit.queries.filter(inside)) queryLabel(context, layout, queries[q], q)
  for (const k of lit.keys.filter(inside)) keyLabel(context, layout, keys[k], k)
}

function clipToRows(context: Pen, { width, height, top }: GraphLayout): void {
  context.save()
  context.beginPath()
  context.rect(0, top, width, height - top)
  context.clip()
}

/** Thousands of curves in a dozen strokes: edges are sorted into buckets of strength, each bucket is one path. */
function strokeEdges(
  canvas: Surface,
  context: Pen,
  layout: GraphLayout,
  { edges, max, palette }: GraphPicture,
  each: (visit: (edge: number) => void) => void,
): void {
  const paths: (Path2D | undefined)[] = new Array(2 * BUCKETS)
  const [x0, x1] = [layout.column + GAP, layout.width - layout.column - GAP]
  const bend = (x1 - x0) / 2
  const thickest = Math.min(3, Math.max(1, layout.pitch / 10))
  let count = 0
  each((edge) => {
    const weight = edges.weight[edge]
    const strength = Math.sqrt(Math.abs(weight) / (max || 1))
    const bucket = Math.min(BUCKETS - 1, Math.floor(strength * BUCKETS)) + (weight < 0 ? BUCKETS : 0)
    const path = paths[bucket] ?? newPath(canvas)
    paths[bucket] = path
    const [y0, y1] = [rowY(edges.query[edge], layout), rowY(edges.key[edge], layout)]
    count += 1
    path.moveTo(x0, y0)
    path.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1)
  })
  // Many curves are each drawn paler, or a broad head would be one blot.
  const ease = Math.min(1, Math.sqrt(COMFORTABLE / Math.max(1, count)))
  paths.forEach((path, bucket) => {
    if (!path) return
    const strength = ((bucket % BUCKETS) + 1) / BUCKETS
    context.strokeStyle = bucket < BUCKETS ? palette.more : palette.less
    context.globalAlpha = (0.12 + 0.88 * strength ** 2) * ease
    context.lineWidth = 0.6 + thickest * strength ** 2
    context.stroke(path)
  })
  context.globalAlpha = 1
}

function labelsOf(context: Pen, layout: GraphLayout, picture: GraphPicture, token: number): void {
  const { queries, keys } = picture
  if (token < queries.length) queryLabel(context, layout, queries[token], token)
  if (token < keys.length) keyLabel(context, layout, keys[token], token)
}

function queryLabel(context: Pen, layout: GraphLayout, label: string, token: number): void {
  context.textAlign = 'right'
  context.fillText(shorten(label, layout.characters), layout.column, rowY(token, layout) + 0.5)
}

function keyLabel(context: Pen, layout: GraphLayout, label: string, token: number): void {
  context.textAlign = 'left'
  context.fillText(shorten(label, layout.characters), layout.width - layout.column, rowY(token, layout) + 0.5)
}
