/** plotly.js, loaded once, when the first figure is opened. */
import type { Head } from '../lib/analysis'
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

async function load(script: string): Promise<Plotly> {
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
  /** A head was clicked. */
  onchoose: (head: Head) => void
}

/** Figures say in their customdata which layer and head a point is about. */
function headOf({ points }: { points: Point[] }): Head | undefined {
  const [layer, head] = (points[0]?.customdata ?? []) as unknown[]
  return typeof layer === 'number' && typeof head === 'number' ? { layer, head } : undefined
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
    const head = headOf(event)
    if (head) surface.onchoose(head)
  })
}

export function clearFigure(from: HTMLElement): void {
  void loading?.then((lib) => lib.purge(from))
}
