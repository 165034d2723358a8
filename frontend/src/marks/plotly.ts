/** plotly.js, loaded once, when the first figure is opened. */
import type { PlotlyFigure } from '../lib/figures'

interface Point {
  customdata?: unknown
}
interface Events {
  on(name: 'plotly_click', call: (event: { points: Point[] }) => void): void
}
interface Plotly {
  react(to: HTMLElement, data: unknown, layout: unknown, config: unknown): Promise<HTMLElement & Events>
  purge(from: HTMLElement): void
}

let loading: Promise<Plotly> | undefined

/** plotly.js styles parts of maps by an attribute, which the page's policy forbids; the same by script is allowed. */
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

/** What failed to load is tried again at the next figure. */
function plotly(script: string): Promise<Plotly> {
  loading ??= load(script).catch(() => {
    loading = undefined
    throw new Error('The part of the page that draws figures could not be loaded. Close the figure and open it again.')
  })
  return loading
}

export interface Surface {
  script: string
  width: number
  height: number
  onchoose: (chosen: Chosen) => void
}

/** What a mark that was clicked is about: a head, or all heads of a layer. */
export interface Chosen {
  layer: number
  head: number | null
}

/** Figures say in their customdata which layer and head a point is about. */
function chosenOf({ points }: { points: Point[] }): Chosen | undefined {
  const [layer, head] = (points[0]?.customdata ?? []) as unknown[]
  return typeof layer === 'number' ? { layer, head: typeof head === 'number' ? head : null } : undefined
}

/** Draws the figure, or draws it anew where it is. */
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
  drawn.on('plotly_click', (event) => {
    const chosen = chosenOf(event)
    if (chosen) surface.onchoose(chosen)
  })
}

export function clearFigure(from: HTMLElement): void {
  void loading?.then((lib) => lib.purge(from))
}
