/** The figures of an analysis: which exist, which are open, and the measures they need. */
import { type FigureInfo, type FigureRequest, type Figures, openFigures, type PlotlyFigure } from '../lib/data/figures'
import { latest } from '../lib/net/latest'
import type { Selection } from './selection.svelte'

export class Statistics {
  known = $state.raw<readonly FigureInfo[]>([])

  constructor(
    readonly figures: Figures | undefined,
    private readonly selection: Selection,
  ) {}

  /** If the list fails there are no figures; the error is shown with the analysis. */
  async learn(): Promise<void> {
    this.known = (await this.figures?.list().catch(() => [])) ?? []
  }

  get open(): FigureInfo[] {
    return openFigures(this.selection.figures, this.known)
  }

  /** Measures that the analysis must have for the open figures. */
  get needs(): string[] {
    return [...new Set(this.open.flatMap(({ measures }) => measures))]
  }

  toggle(name: string): void {
    const names = this.open.map((figure) => figure.name)
    const next = names.includes(name) ? names.filter((other) => other !== name) : [...names, name]
    this.selection.set({ figures: next.join(',') })
  }
}

export const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error))

/** Loads one figure; the previous one stays, as stale, until the new one has arrived. */
export class FigureLoader {
  figure = $state.raw<PlotlyFigure>()
  /** What the figure is about. */
  about = $state('')
  error = $state('')
  #task: (id: string, asked: FigureRequest) => Promise<PlotlyFigure | undefined>

  constructor(
    figures: Figures,
    private readonly fail: (error: unknown) => string,
  ) {
    this.#task = latest((signal, id: string, asked: FigureRequest) => figures.draw(id, asked, signal))
  }

  async ask(id: string, asked: FigureRequest, about: string): Promise<void> {
    try {
      const figure = await this.#task(id, asked)
      if (!figure) return
      this.figure = figure
      this.about = about
      this.error = ''
    } catch (error) {
      this.figure = undefined
      this.error = this.fail(error)
    }
  }
}
