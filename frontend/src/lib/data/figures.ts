/** Figures of an analysis or a study as plotly draws them: what there is, what one is asked with, and what comes. */

export interface FigureInfo {
  name: string
  title: string
  doc: string
  not: string
  /** Measures that must have been computed for it. */
  measures: readonly string[]
  /** The lenses it can be drawn for; none where that is no choice. */
  lenses: readonly string[]
  /** What a study must have for it: a second variant, or labels of words. */
  asks: readonly string[]
  /** JSON Schema of what else can be chosen. */
  params: unknown
}

export interface FigureRequest {
  name: string
  /** What differs from the figure's own defaults. */
  params: Readonly<Record<string, string | number>>
  theme: 'light' | 'dark'
}

export interface PlotlyFigure {
  data: readonly Record<string, unknown>[]
  layout: Record<string, unknown>
}

export type FileFormat = 'svg' | 'png' | 'pdf' | 'csv'

/** Where figures come from. */
export interface Figures {
  list(): Promise<FigureInfo[]>
  draw(id: string, asked: FigureRequest, signal: AbortSignal): Promise<PlotlyFigure>
  /** A picture, fit for print, or the numbers. */
  file(id: string, asked: FigureRequest, format: FileFormat): Promise<Blob>
  /** Address of the script that draws. */
  script: string
}

/** It can be drawn for the heads of one layer, too. */
export const ofLayer = ({ params }: FigureInfo) => takes(params, 'layer')

/** Whether a parameter is among those of a JSON Schema. */
export const takes = (params: unknown, name: string) =>
  Object.hasOwn((params as { properties?: object }).properties ?? {}, name)

/** What is chosen once for all figures of a study, as far as one takes it. */
export const sharedParams = ({ params, lenses }: FigureInfo, lens: string, variant: number) => ({
  ...(takes(params, 'lens') && lenses.includes(lens) ? { lens } : {}),
  ...(takes(params, 'variant') && variant > 0 ? { variant } : {}),
})

/** What a figure shows, in words. */
export function sentenceOf({ layout }: PlotlyFigure): string {
  const meta = layout.meta as { sentence?: unknown } | undefined
  return typeof meta?.sentence === 'string' ? meta.sentence : ''
}

/** Names of the figures in an address that there are. */
export const openFigures = (written: string, known: readonly FigureInfo[]): FigureInfo[] =>
  known.filter(({ name }) => written.split(',').includes(name))

/** Comma-separated values as rows of cells. A cell in quotes may hold commas, line breaks, and quotes written twice. */
export function readCsv(text: string): string[][] {
  const rows: string[][] = [[]]
  for (const [, cell, end] of text.trimEnd().matchAll(/("(?:[^"]|"")*"|[^,\n]*)(,|\n|$)/g)) {
    rows.at(-1)!.push(cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell)
    if (end === '\n') rows.push([])
    if (end === '') break
  }
  return rows
}
