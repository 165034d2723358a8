import { describe, expect, it } from 'vitest'
import { markOpenHead } from '../../src/lib/data/open-head'

const open = { head: { layer: 1, head: 0 }, ink: 'red', paper: 'white' }
const dots = (trace: object) => ({
  data: [
    {
      type: 'scatter',
      x: [0, 1, 2],
      y: [5, 6, 7],
      customdata: [
        [0, 0],
        [1, 0],
        [1, null],
      ],
      ...trace,
    },
  ],
  layout: { annotations: [{ text: 'title' }] },
})
type Layout = { shapes: Record<string, unknown>[]; annotations: Record<string, unknown>[] }

describe('markOpenHead', () => {
  it('rings the dot of the head and names it, beside what the figure has', () => {
    const { data, layout } = markOpenHead(dots({ xaxis: 'x2', yaxis: 'y2' }), open)
    const { shapes, annotations } = layout as unknown as Layout
    expect(data).toHaveLength(1)
    expect(shapes).toHaveLength(1)
    expect(shapes[0]).toMatchObject({ xanchor: 1, yanchor: 6, xref: 'x2', yref: 'y2', line: { color: 'red' } })
    expect(annotations.map(({ text }) => text)).toEqual(['title', '1.0'])
  })

  it('rings the cell of a heat map', () => {
    const cells = {
      type: 'heatmap',
      x: [0, 1],
      y: [3, 4],
      customdata: [
        [
          [0, 0],
          [0, 1],
        ],
        [
          [1, 1],
          [1, 0],
        ],
      ],
    }
    const { shapes } = markOpenHead({ data: [cells], layout: {} }, open).layout as unknown as Layout
    expect(shapes).toMatchObject([{ xanchor: 1, yanchor: 4 }])
  })

  it('leaves a figure as it is without a mark about one head, or without a value for it', () => {
    for (const figure of [
      dots({
        customdata: [
          [0, null],
          [1, null],
          [2, null],
        ],
      }),
      dots({ y: [5, null, 7] }),
      dots({ customdata: undefined }),
    ])
      expect(markOpenHead(figure, open)).toBe(figure)
    const figure = dots({})
    expect(markOpenHead(figure, undefined)).toBe(figure)
  })
})
