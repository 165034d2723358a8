/** Figures of fixed numbers, drawn by the server's own code: tests/unit/figures/fixed.py writes them. */
import { type AskedFigure, type Figures, type PlotlyFigure, sentenceOf } from '../lib/figures'
import { readInfo, type WireFigure } from './figures'
import data from './fixed-figures.json'

type Drawn = Record<string, PlotlyFigure>
const fixed = data as unknown as { declared: WireFigure[]; light: Drawn; dark: Drawn }

const drawn = ({ name, layer, theme }: AskedFigure) => fixed[theme][layer === null ? name : `${name} by head`]

export const fixedFigures: Figures = {
  list: async () => fixed.declared.map(readInfo),
  draw: async (_, asked) => drawn(asked),
  file: async (_, asked) => new Blob([sentenceOf(drawn(asked))], { type: 'text/plain' }),
  script: '/assets/plotly.js',
}
