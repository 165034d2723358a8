/** A ring around the open head in a figure, with its name. */
import { type Head, headName } from './analysis'
import type { PlotlyFigure } from './figures'

export interface OpenHead {
  head: Pick<Head, 'layer' | 'head'>
  /** Colours of the ring and of the paper behind the name. */
  ink: string
  paper: string
}

/** Half the width of the ring, and how far the name is above its centre, in pixels. */
const RADIUS = 7
const ABOVE = 17

type Point = { x: unknown; y: unknown; xref: unknown; yref: unknown }

/** The marks about this head: dots by their place in a list, cells of a heat map by row and column. */
function pointsOf(trace: Record<string, unknown>, { layer, head }: OpenHead['head']): Point[] {
  const { x, y, customdata, type } = trace
  if (!Array.isArray(x) || !Array.isArray(y) || !Array.isArray(customdata)) return []
  const [xref, yref] = [trace.xaxis ?? 'x', trace.yaxis ?? 'y']
  const about = (entry: unknown) => Array.isArray(entry) && entry[0] === layer && entry[1] === head
  const rows = type === 'heatmap' ? customdata.map((row) => (Array.isArray(row) ? row.findIndex(about) : -1)) : []
  if (type === 'heatmap') return rows.flatMap((at, row) => (at < 0 ? [] : [{ x: x[at], y: y[row], xref, yref }]))
  return customdata.flatMap((entry, i) => (about(entry) && y[i] !== null ? [{ x: x[i], y: y[i], xref, yref }] : []))
}

/** The figure with the open head marked wherever a single mark is about it; otherwise the same figure. */
export function markOpenHead(figure: PlotlyFigure, open: OpenHead | undefined): PlotlyFigure {
  const points = open ? figure.data.flatMap((trace) => pointsOf(trace, open.head)) : []
  if (!open || points.length === 0) return figure
  const rings = points.map(({ x, y, xref, yref }) => ({
    type: 'circle',
    ...{ xref, yref, xsizemode: 'pixel', ysizemode: 'pixel', xanchor: x, yanchor: y },
    ...{ x0: -RADIUS, x1: RADIUS, y0: -RADIUS, y1: RADIUS },
    line: { color: open.ink, width: 2 },
  }))
  const names = points.map((point) => ({
    ...point,
    text: headName(open.head),
    showarrow: false,
    yshift: ABOVE,
    font: { size: 12, color: open.ink },
    bgcolor: open.paper,
    borderpad: 1,
  }))
  const before = (name: string) => (figure.layout[name] ?? []) as unknown[]
  const layout = {
    ...figure.layout,
    shapes: [...before('shapes'), ...rings],
    annotations: [...before('annotations'), ...names],
  }
  return { data: figure.data, layout }
}
