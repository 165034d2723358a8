/** Fit a figure of several panels to the width: fewer columns if titles do not fit, and no overlapping labels. */
import type { PlotlyFigure } from '../data/figures'

interface Axis {
  domain?: [number, number]
  title?: { text?: string }
  tickvals?: readonly number[]
  ticktext?: readonly string[]
  tickangle?: number
  showticklabels?: boolean
}
type Box = { left: number; right: number; bottom: number; top: number }
interface Panel {
  /** `` for the first, `2` for the second: how plotly names axes. */
  end: string
  across: Axis
  down: Axis
  box: Box
  /** The title of a panel. */
  title: string
}
interface Size {
  width: number
  height: number
}

/** Widths in pixels: of a 12 px letter, of the axis left of a panel, of the narrowest panel; and heights of a line and a legend entry. */
const LETTER = 6.6
const BESIDE = 60
const LEAST = 96
const LINE = 19
const ENTRY = 140
/** The largest height of a panel, and the height of its title. */
const TALLEST = 200
const TITLE = 26

const textOf = ({ title }: Axis) => title?.text ?? ''
const pixels = (text: string) => Math.max(...text.split('<br>').map((line) => LETTER * line.length))

/** Fit a figure to a place; returns it with its height. */
export function reflow(figure: PlotlyFigure, size: Size): { figure: PlotlyFigure; height: number } {
  const { l, r, t, b } = { l: 0, r: 0, t: 0, b: 0, ...(figure.layout.margin as object) }
  const inner = { width: size.width - l - r, height: size.height - t - b }
  const panels = panelsOf(figure)
  const columns = new Set(panels.map(({ box }) => box.left)).size
  const fit = Math.max(1, Math.min(columns, Math.floor(inner.width / Math.max(...panels.map(roomOf)))))
  if (panels.length < 2 || fit === columns)
    return { figure: labelled(figure, panels, inner.width), height: size.height }
  const height = heightOf(panels, fit, inner.height)
  const boxes = boxesOf(panels.length, fit, { width: inner.width, height: height.inner }, height.panel)
  const moved = panels.map((panel, i) => ({
    ...panel,
    down: boxes[i].left > 0 ? panel.down : named(panel, panels),
    box: boxes[i],
  }))
  return {
    figure: labelled(place(figure, panels, moved, inner.height / height.inner), moved, inner.width),
    height: height.inner + t + b + legendOf(figure, inner.width),
  }
}

/** Row by row, in the order of their numbers. */
function panelsOf({ layout }: PlotlyFigure): Panel[] {
  const axes = layout as Record<string, Axis>
  const titles = (layout.annotations ?? []) as { x: number; y: number; text: string }[]
  const ends = Object.keys(layout).flatMap((name) => /^xaxis(\d*)$/.exec(name)?.[1] ?? [])
  return ends
    .sort((a, b) => Number(a || 1) - Number(b || 1))
    .flatMap((end) => {
      const [across, down] = [axes[`xaxis${end}`], axes[`yaxis${end}`]]
      if (!across || !down) return []
      const [[left, right], [bottom, top]] = [across.domain ?? [0, 1], down.domain ?? [0, 1]]
      const title = titles.find(({ x, y }) => x === left && y === top)?.text ?? ''
      return [{ end, across, down, title, box: { left, right, bottom, top } }]
    })
}

/** Pixels between the left edges of adjacent panels. */
function roomOf({ across, down, title, box }: Panel): number {
  const labelled = box.left > 0 && textOf(down) !== '' ? LEAST + 2.4 * BESIDE : LEAST
  return Math.max(labelled, pixels(title) + 12, pixels(textOf(across)) + 12)
}

/** The space below a panel: its labels, upright or not, and the title of its axis. */
function below({ across }: Panel): number {
  const labels =
    across.tickangle === -90 ? Math.max(0, ...(across.ticktext ?? []).map((text) => 5.5 * text.length)) : 12
  return labels + 10 + (textOf(across) === '' ? 0 : 20)
}

function heightOf(panels: readonly Panel[], columns: number, before: number): { panel: number; inner: number } {
  const rows = Math.ceil(panels.length / columns)
  const [{ box }] = panels
  const panel = Math.min(TALLEST, (box.top - box.bottom) * before)
  const between = TITLE + Math.max(...panels.map(below))
  return { panel, inner: rows * panel + (rows - 1) * between }
}

/** Positions of so many panels in so many columns, 0 to 1. */
function boxesOf(count: number, columns: number, inner: Size, panel: number): Box[] {
  const rows = Math.ceil(count / columns)
  const gap = BESIDE / inner.width
  const wide = (1 - gap * (columns - 1)) / columns
  const high = panel / inner.height
  const step = rows > 1 ? (1 - high) / (rows - 1) : 0
  return Array.from({ length: count }, (_, i) => {
    const left = (i % columns) * (wide + gap)
    const top = 1 - Math.floor(i / columns) * step
    return { left, right: Math.min(1, left + wide), bottom: Math.max(0, top - high), top }
  })
}

/** Move axes, titles and colour bars; what is positioned in fractions of the height, such as a legend above, keeps its pixels. */
function place(
  { data, layout }: PlotlyFigure,
  from: readonly Panel[],
  to: readonly Panel[],
  shrunk: number,
): PlotlyFigure {
  const axes = Object.fromEntries(
    to.flatMap(({ end, across, down, box }) => [
      [`xaxis${end}`, { ...across, domain: [box.left, box.right] }],
      [`yaxis${end}`, { ...down, domain: [box.bottom, box.top] }],
    ]),
  )
  const annotations = ((layout.annotations ?? []) as { x: number; y: number }[]).map((one) => {
    const at = from.findIndex(({ box }) => box.left === one.x && box.top === one.y)
    return at < 0 ? one : { ...one, x: to[at].box.left, y: to[at].box.top }
  })
  const legend = layout.legend as { y?: number } | undefined
  const above = legend?.y === undefined ? {} : { legend: { ...legend, y: 1 + (legend.y - 1) * shrunk } }
  const traces = data.map((trace) => {
    const at = to.find(({ end }) => (trace.xaxis ?? 'x') === `x${end}`)
    if (!at || !trace.colorbar) return trace
    const { right, bottom, top } = at.box
    return { ...trace, colorbar: { ...trace.colorbar, x: right, y: (bottom + top) / 2, len: top - bottom } }
  })
  return { data: traces, layout: { ...layout, ...axes, ...above, annotations } }
}

/** Title the axis of the leftmost panel like that of the panel that was leftmost in its row. */
function named({ down, box }: Panel, all: readonly Panel[]): Axis {
  const first = all.find((one) => one.box.left === 0 && one.box.top === box.top)?.down
  const alike = first && String(first.tickvals) === String(down.tickvals)
  return alike && textOf(down) === '' ? { ...first } : down
}

/** The height of a legend above, in pixels. */
function legendOf({ data, layout }: PlotlyFigure, width: number): number {
  if (layout.showlegend !== true) return 0
  const entries = new Set(data.flatMap(({ showlegend, name }) => (showlegend === false ? [] : [name]))).size
  return LINE * Math.ceil(entries / Math.max(1, Math.floor(width / ENTRY)))
}

/** Labels along the axes: as many as fit beside each other, or with their words below each other. */
function labelled({ data, layout }: PlotlyFigure, panels: readonly Panel[], width: number): PlotlyFigure {
  const axes = panels.flatMap(({ end, box }) => {
    const axis = layout[`xaxis${end}`] as Axis
    const { tickvals = [], ticktext = [], tickangle } = axis
    const room = ((box.right - box.left) * width) / tickvals.length
    const each = tickangle === -90 ? 11 : Math.max(0, ...ticktext.map(pixels)) + 6
    if (tickvals.length === 0 || room >= each) return []
    if (tickangle !== -90 && ticktext.some((text) => text.includes(' ')))
      return [[`xaxis${end}`, { ...axis, ticktext: ticktext.map((text) => wrapped(text, room / LETTER)) }]]
    const step = Math.ceil(each / room)
    const kept = <T>(all: readonly T[]) => all.filter((_, i) => i % step === 0)
    return [[`xaxis${end}`, { ...axis, tickvals: kept(tickvals), ticktext: kept(ticktext) }]]
  })
  return { data, layout: { ...layout, ...Object.fromEntries(axes) } }
}

/** Wrap a label into lines of so many letters. */
function wrapped(text: string, letters: number): string {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const line = `${lines.at(-1) ?? ''} ${word}`.trim()
    if (lines.length > 0 && line.length <= letters) lines[lines.length - 1] = line
    else lines.push(word)
  }
  return lines.join('<br>')
}
