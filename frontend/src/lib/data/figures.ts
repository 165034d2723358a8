/** Figures of an analysis or a study: their declarations, requests and results, drawn by plotly. */

export interface FigureInfo {
  name: string
  title: string
  doc: string
  not: string
  citation: string
  /** Measures that must have been computed. */
  measures: readonly string[]
  /** The lenses it can be drawn for; empty if the lens is not a choice. */
  lenses: readonly string[]
  /** What it requires of a study: a second variant, or labels of words. */
  asks: readonly string[]
  /** JSON Schema of its other parameters. */
  params: unknown
}

export interface FigureRequest {
  name: string
  /** What differs from the defaults of the figure. */
  params: Readonly<Record<string, string | number>>
  theme: 'light' | 'dark'
}

export interface PlotlyFigure {
  data: readonly Record<string, unknown>[]
  layout: Record<string, unknown>
}

export type FileFormat = 'svg' | 'png' | 'pdf' | 'csv'

/** The source of figures. */
export interface Figures {
  list(): Promise<FigureInfo[]>
  draw(id: string, asked: FigureRequest, signal: AbortSignal): Promise<PlotlyFigure>
  /** A picture for print, or the numbers. */
  file(id: string, asked: FigureRequest, format: FileFormat): Promise<Blob>
  /** The URL of the script that draws figures. */
  script: string
}

/** Whether a figure can also be drawn for the heads of one layer. */
export const ofLayer = ({ params }: FigureInfo) => takes(params, 'layer')

/** Whether a JSON Schema has a parameter of this name. */
export const takes = (params: unknown, name: string) =>
  Object.hasOwn((params as { properties?: object }).properties ?? {}, name)

/** The parameters that all figures of a study share, as far as this one accepts them. */
export const sharedParams = ({ params, lenses }: FigureInfo, lens: string, variant: number) => ({
  ...(takes(params, 'lens') && lenses.includes(lens) ? { lens } : {}),
  ...(takes(params, 'variant') && variant > 0 ? { variant } : {}),
})

/** A figure in words. */
export function sentenceOf({ layout }: PlotlyFigure): string {
  const meta = layout.meta as { sentence?: unknown } | undefined
  return typeof meta?.sentence === 'string' ? meta.sentence : ''
}

/** The known figures among the comma-separated names in the address. */
export const openFigures = (written: string, known: readonly FigureInfo[]): FigureInfo[] =>
  known.filter(({ name }) => written.split(',').includes(name))

/** Parse comma-separated values into rows of cells. Quoted cells may contain commas, line breaks and doubled quotes. */
export function readCsv(text: string): string[][] {
  const rows: string[][] = [[]]
  for (const [, cell, end] of text.trimEnd().matchAll(/("(?:[^"]|"")*"|[^,\n]*)(,|\n|$)/g)) {
    rows.at(-1)!.push(cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell)
    if (end === '\n') rows.push([])
    if (end === '') break
  }
  return rows
}
