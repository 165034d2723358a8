import { describe, expect, it } from 'vitest'
import type { PlotlyFigure } from '../../src/lib/data/figures'
import { reflow } from '../../src/lib/maths/reflow'

const WIDE = { width: 1000, height: 340 }
const NARROW = { width: 362, height: 340 }

/** Panels beside each other, with titles, scales of colours and named places, as the server lays them out. */
function panels(titles: readonly string[]): PlotlyFigure {
  const count = titles.length
  const wide = (1 - 0.1 * (count - 1)) / count
  const spans = titles.map((_, i) => [i * (wide + 0.1), i * (wide + 0.1) + wide])
  const ticks = {
    tickvals: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    ticktext: 'abcdefghijkl'.split('').map((one) => one + one),
  }
  const end = (i: number) => (i === 0 ? '' : String(i + 1))
  return {
    data: spans.map(([, right], i) => ({
      type: 'heatmap',
      xaxis: `x${end(i)}`,
      colorbar: { x: right, y: 0.5, len: 1 },
    })),
    layout: {
      margin: { l: 56, r: 12, t: 30, b: 46 },
      legend: { y: 1.1 },
      annotations: titles.map((text, i) => ({ text, x: spans[i][0], y: 1 })),
      ...Object.fromEntries(
        spans.map((domain, i) => [`xaxis${end(i)}`, { domain, title: { text: 'head' }, ...ticks }]),
      ),
      ...Object.fromEntries(spans.map((_, i) => [`yaxis${end(i)}`, { domain: [0, 1] }])),
    },
  }
}
const LONG = ['[CLS] or first, Weights', '[CLS] or first, Effective attention', '[CLS] or first, Norm of contributions']
const domains = ({ layout }: PlotlyFigure, of: 'x' | 'y') =>
  ['', '2', '3'].map((end) => (layout[`${of}axis${end}`] as { domain: [number, number] }).domain)

describe('panels of a figure', () => {
  it('stay where they are in a place that is wide enough', () => {
    const figure = panels(LONG)
    const { figure: same, height } = reflow(figure, WIDE)
    expect(height).toBe(WIDE.height)
    expect(domains(same, 'x')).toEqual(domains(figure, 'x'))
  })

  it('stand below each other where their titles have no room, and do not overlap', () => {
    const { figure, height } = reflow(panels(LONG), NARROW)
    expect(domains(figure, 'x')).toEqual([
      [0, 1],
      [0, 1],
      [0, 1],
    ])
    const rows = domains(figure, 'y')
    const inner = height - 76
    for (const [at, [bottom, top]] of rows.entries()) {
      expect((top - bottom) * inner).toBeCloseTo(200, 5)
      if (at > 0) expect((rows[at - 1][0] - top) * inner).toBeGreaterThan(60)
    }
    expect([rows[0][1], rows[2][0]].map((end) => Number(end.toFixed(6)))).toEqual([1, 0])
  })

  it('take their titles and their scales along, and leave the legend its distance', () => {
    const { figure, height } = reflow(panels(LONG), NARROW)
    const rows = domains(figure, 'y')
    const titles = figure.layout.annotations as { x: number; y: number }[]
    expect(titles.map(({ x, y }) => [x, y])).toEqual(rows.map(([, top]) => [0, top]))
    const bars = figure.data.map(({ colorbar }) => colorbar as { x: number; y: number; len: number })
    for (const [at, { x, y, len }] of bars.entries()) {
      expect([x, y]).toEqual([1, (rows[at][0] + rows[at][1]) / 2])
      expect(len).toBeCloseTo(rows[at][1] - rows[at][0], 9)
    }
    const { y } = figure.layout.legend as { y: number }
    expect((y - 1) * (height - 76)).toBeCloseTo(0.1 * (NARROW.height - 76), 6)
  })

  it('stand as many beside each other as fit', () => {
    const { figure } = reflow(panels(['Entropy (nats)', 'Variance of it', 'Distance']), { ...NARROW, width: 330 })
    expect(new Set(domains(figure, 'x').map(([left]) => left)).size).toBe(2)
  })
})

describe('labels of an axis', () => {
  const labels = ({ layout }: PlotlyFigure) => (layout.xaxis as { ticktext: string[] }).ticktext

  it('are all there where there is room, else every second, third, …', () => {
    expect(labels(reflow(panels(['one']), WIDE).figure)).toHaveLength(12)
    expect(labels(reflow(panels(['one']), { ...NARROW, width: 250 }).figure)).toEqual([
      'aa',
      'cc',
      'ee',
      'gg',
      'ii',
      'kk',
    ])
  })

  it('of words stand in lines', () => {
    const names = {
      tickvals: [0, 1, 2],
      ticktext: ['Weights', 'Effective attention', 'Effective attention, rows sum to 1'],
    }
    const figure = {
      data: [],
      layout: { margin: { l: 56, r: 12 }, xaxis: names, yaxis: {} },
    }
    expect(labels(reflow(figure, NARROW).figure)).toEqual([
      'Weights',
      'Effective<br>attention',
      'Effective<br>attention,<br>rows sum to 1',
    ])
    expect(labels(reflow(figure, WIDE).figure)).toEqual(names.ticktext)
  })

  it('are left alone where a figure names no places', () => {
    const plain = { data: [], layout: { xaxis: { title: { text: 'nats' } }, yaxis: {} } }
    expect(reflow(plain, NARROW)).toEqual({ figure: plain, height: NARROW.height })
  })
})
