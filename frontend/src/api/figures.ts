/** Figures over REST. */
import type { FigureInfo, FigureRequest, Figures, PlotlyFigure } from '../lib/data/figures'
import { call, getJson } from './http'
import { everyItem, type Query } from './pages'
import type { components } from './schema'

export type WireFigure = components['schemas']['FigureSchema']

export const readInfo = ({
  name,
  title,
  doc,
  not,
  citation,
  measures,
  lenses,
  asks,
  params,
}: WireFigure): FigureInfo => ({
  name,
  title,
  doc,
  not,
  citation,
  measures,
  lenses,
  asks,
  params,
})

/** Figures of analyses, or of studies. */
export async function listFigures(place: (query: Query) => string, of: WireFigure['of']): Promise<FigureInfo[]> {
  return (await everyItem<WireFigure>(place)).filter((item) => item.of === of).map(readInfo)
}

/** One and a half columns of a journal, in px of 1/96 inch. */
const PRINTED = { width: 520, height: 320 }

const chosen = ({ params, theme }: FigureRequest): Query => ({ ...params, theme })

/** `list` requests the declarations of figures; `of` builds the URL of a figure of an analysis or study. */
export function figures(
  list: () => Promise<FigureInfo[]>,
  of: (id: string, parts: string[], query: Query) => string,
): Figures {
  return {
    list,
    draw: (id, asked, signal) => getJson<PlotlyFigure>(of(id, ['figures', asked.name], chosen(asked)), signal),
    async file(id, asked, format) {
      const paper = chosen({ ...asked, theme: 'light' })
      return (
        await call(of(id, ['figures', asked.name], { ...paper, ...(format === 'csv' ? {} : PRINTED), format }))
      ).blob()
    },
    script: '/assets/plotly.js',
  }
}
