/** Figures of fixed numbers, drawn by the server's code and written by tests/unit/figures/fixed.py. */

import { readInfo, type WireFigure } from '../src/api/figures'
import type { FigureRequest, Figures, PlotlyFigure } from '../src/lib/data/figures'
import data from './figures.json'

type Drawn = Record<string, PlotlyFigure>
const fixed = data as unknown as { declared: WireFigure[]; light: Drawn; dark: Drawn; tables: Record<string, string> }

const keyOf = ({ name, params }: FigureRequest) => ('layer' in params ? `${name} by head` : name)

export const fixedFigures: Figures = {
  list: async () => fixed.declared.map((info) => readInfo({ ...info, asks: [] })),
  draw: async (_, asked) => fixed[asked.theme][keyOf(asked)],
  file: async (_, asked) => new Blob([fixed.tables[keyOf(asked)]], { type: 'text/csv' }),
  script: '/assets/plotly.js',
}
