/** plotly.js, loaded on demand with the first figure. */
import type { PlotlyFigure } from '../lib/data/figures'
import { overlaps, type Spot } from '../lib/maths/highlight'

interface Point {
  customdata?: unknown
  /** Its trace. */
  data?: { meta?: { variant?: number } }
}
interface Events {
  on(name: 'plotly_click' | 'plotly_hover', call: (event: { points: Point[] }) => void): void
}
interface Trace {
  curveNumber: number
  pointNumber: number
}
interface Plotly {
  react(to: HTMLElement, data: unknown, layout: unknown, config: unknown): Promise<HTMLElement & Events>
  purge(from: HTMLElement): void
  Fx: { hover(on: HTMLElement, points: Trace[]): void; unhover(on: HTMLElement): void }
}

let loading: Promise<Plotly> | undefined

/** plotly.js sets styles of maps by an attribute, which the page's policy forbids; setting them by script is allowed. */
function styleByScript(): void {
  const set = SVGElement.prototype.setAttribute
  SVGElement.prototype.setAttribute = function (this: SVGElement, name: string, value: string): void {
    if (name === 'style') this.style.cssText = value
    else set.call(this, name, value)
  }
}

async function load(script: string): Promise<Plotly> {
  styleByScript()
  await import(/* @vite-ignore */ new URL(script, location.href).href)
  return (globalThis as unknown as { Plotly: Plotly }).Plotly
}

/** A failed load is retried at the next figure. */
function plotly(script: string): Promise<Plotly> {
  loading ??= load(script).catch(() => {
    loading = undefined
    throw new Error('The plotting library could not be loaded. Close the figure and open it again.')
  })
  return loading
}

export interface Surface {
  script: string
  width: number
  height: number
  /** A mark was clicked: the head or layer that it is about. */
  onchoose: (spot: Spot) => void
  /** The pointer is at a point, about this head or layer. */
  onspot: (spot: Spot) => void
}

/** The customdata of figures name the layer and head of a point; head is null for points about a whole layer. */
function spotOf(customdata: unknown): Spot | undefined {
  const [layer, head] = Array.isArray(customdata) ? customdata : []
  return typeof layer === 'number' ? { layer, head: typeof head === 'number' ? head : null } : undefined
}

/** Draw the figure, or update it in place. */
export async function drawFigure(to: HTMLElement, { data, layout }: PlotlyFigure, surface: Surface): Promise<void> {
  const lib = await plotly(surface.script)
  if (!to.isConnected) return
  const first = !to.classList.contains('js-plotly-plot')
  const { width, height } = surface
  const copy = structuredClone({ data, layout })
  const drawn = await lib.react(
    to,
    copy.data,
    { ...copy.layout, width, height },
    { displayModeBar: false, doubleClick: false },
  )
  if (!first) return
  drawn.on('plotly_click', ({ points }) => {
    const [spot, variant] = [spotOf(points[0]?.customdata), points[0]?.data?.meta?.variant]
    if (spot) surface.onchoose({ ...spot, ...(variant === undefined ? {} : { variant }) })
  })
  drawn.on('plotly_hover', ({ points }) => {
    const spot = spotOf(points[0]?.customdata)
    // Also fires for points highlighted from elsewhere.
    if (spot && to.matches(':hover')) surface.onspot(spot)
  })
}

/** Highlight the point about a head or layer, as if it were hovered. */
export async function lightPoint(on: HTMLElement, { data }: PlotlyFigure, spot: Spot | null): Promise<void> {
  const lib = await loading
  if (!lib || !on.classList.contains('js-plotly-plot') || on.matches(':hover')) return
  const points = data.flatMap(({ customdata }, curveNumber) =>
    (Array.isArray(customdata) ? customdata : []).flatMap((about, pointNumber) => {
      const own = spotOf(about)
      return spot && own && overlaps(own, spot) ? [{ curveNumber, pointNumber }] : []
    }),
  )
  // Ambiguous if several points are about it.
  if (points.length === 1) lib.Fx.hover(on, points)
  else lib.Fx.unhover(on)
}

export function clearFigure(from: HTMLElement): void {
  void loading?.then((lib) => lib.purge(from))
}
