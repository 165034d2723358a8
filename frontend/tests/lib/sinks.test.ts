import { describe, expect, it } from 'vitest'
import { random } from '../../gallery/maps'
import { fixedTokens } from '../../gallery/source'
import type { AttentionWindow } from '../../src/lib/data/analysis'
import { tokenAxis } from '../../src/lib/maths/axis'
import { columnMeans, type Matrix } from '../../src/lib/maths/matrix'
import { visibleCells, visibleMax } from '../../src/lib/maths/raster'
import { areLeft, findSinks, meanReceived, pickAxis, pickMap } from '../../src/lib/maths/sinks'
import { drawnAxes } from '../../src/state/left-out'

type Window = AttentionWindow | null
const within = (window: Window, q: number, k: number) => !window || (k >= q - window[0] && k <= q + window[1])

/** Rows of shares; the first key may be a sink, and one row has no reading. */
function map(n: number, { window = null as Window, sink = false, gap = false, seed = 3 }): Matrix {
  const next = random(seed)
  const data = new Float32Array(n * n)
  for (let q = 0; q < n; q++) {
    const row = Array.from({ length: n }, (_, k) => {
      const value = next() ** 3 + (sink && k === 0 ? n : 0)
      return within(window, q, k) ? value : 0
    })
    const sum = row.reduce((total, value) => total + value, 0)
    for (let k = 0; k < n; k++)
      data[q * n + k] = (gap && q === 2 ? Number.NaN : 1) * (row[k] / sum) * (k % 3 === 1 ? -1 : 1)
  }
  return { data, rows: n, cols: n, exact: true }
}

const places = (n: number) =>
  tokenAxis(
    fixedTokens(
      Array(n - 2)
        .fill('a')
        .join(' '),
    ),
  )

/** The definition, query by query. */
function slow({ data, rows, cols }: Matrix, window: Window): { sinks: boolean[]; received: number[] } {
  const at = (q: number, k: number) => Math.abs(data[q * cols + k])
  const keys = Array.from({ length: cols }, (_, k) => k)
  const see = keys.map((k) => Array.from({ length: rows }, (_, q) => q).filter((q) => within(window, q, k)))
  const sees = see.map((queries) => queries.filter((q) => !Number.isNaN(at(q, 0))))
  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0)
  const most = Math.max(...see.map((queries) => queries.length))
  return {
    sinks: keys.map((k) => {
      const given = sum(sees[k].flatMap((q) => keys.map((key) => at(q, key))))
      return sum(sees[k].map((q) => at(q, k))) > 0.3 * given && see[k].length >= most / 2
    }),
    received: keys.map((k) => sum(sees[k].map((q) => at(q, k))) / Math.max(1, sees[k].length)),
  }
}

describe('sinks and what keys receive', () => {
  for (const window of [null, [16, 0], [5, 0], [6, 6], [4, 2]] as const)
    for (const sink of [false, true])
      for (const gap of [false, true])
        it(`follow their definitions: ${JSON.stringify({ window, sink, gap })}`, () => {
          const given = map(17, { window, sink, gap })
          const { sinks, received } = slow(given, window)
          expect(findSinks(given, window)).toEqual(sinks)
          if (sink) expect(sinks[0]).toBe(true)
          const found = meanReceived(given, window, places(17))
          expect(found).toHaveLength(17)
          for (const [k, value] of received.entries()) expect(found[k]).toBeCloseTo(value, 6)
        })

  it('does not miss the sink of a window in a long text', () => {
    const [n, window] = [60, [7, 0] as const]
    const far = map(n, { window })
    for (let q = 20; q < 28; q++) far.data[q * n + 20] = 1
    expect(findSinks(far, window)[20]).toBe(true)
    expect(findSinks(far, null)[20]).toBe(false)
  })

  it('do not shrink towards the end of a causal text', () => {
    const n = 40
    const even = { data: new Float32Array(n * n), rows: n, cols: n, exact: true }
    for (let q = 0; q < n; q++) for (let k = 0; k <= q; k++) even.data[q * n + k] = 1
    expect([...meanReceived(even, [n - 1, 0], places(n))].every((value) => Math.abs(value - 1) < 1e-6)).toBe(true)
    expect(columnMeans(even)[n - 1]).toBeCloseTo(1 / n)
  })

  it('never call the last token of a causal text a sink', () => {
    const n = 8
    const self = {
      data: Float32Array.from({ length: n * n }, (_, i) => Number(i % (n + 1) === 0)),
      rows: n,
      cols: n,
      exact: true,
    }
    expect(findSinks(self, [n - 1, 0])).toEqual(new Array(n).fill(false))
  })
})

describe('maps without some tokens', () => {
  const tokens = fixedTokens('one two three four five six')
  const axis = tokenAxis(tokens)
  const n = tokens.length
  const whole = map(n, {})
  const left = { queries: areLeft(tokens, [false, false, true]), keys: areLeft(tokens, [false, false, true]) }

  it('have the entries of the others, and places that lead back to tokens', () => {
    const drawn = drawnAxes([axis, axis], left, 'hide')
    const kept = tokens.flatMap(({ kind }, i) => (kind === 'special' || i === 2 ? [] : [i]))
    expect(kept.length).toBe(n - 3)
    const [queries, keys] = drawn.axes
    expect(queries).toBe(keys)
    expect(queries.labels).toEqual(kept.map((i) => axis.labels[i]))
    const found = drawn.draw(whole)
    for (const [y, q] of kept.entries())
      for (const [x, k] of kept.entries()) expect(found.data[y * kept.length + x]).toBe(whole.data[q * n + k])
    for (const [place, token] of kept.entries())
      expect([queries.of[token], queries.start[place]]).toEqual([place, token])
    expect(tokens.map((_, i) => queries.of[i]).filter((place) => place < 0)).toHaveLength(3)
  })

  it('count marked columns for no scale, but keep their values', () => {
    const drawn = drawnAxes([axis, axis], left, 'mark')
    expect(drawn.axes[0]).toBe(axis)
    expect(drawn.draw(whole)).toBe(whole)
    const counted = drawn.count(whole)
    for (let q = 0; q < n; q++)
      for (let k = 0; k < n; k++) expect(counted.data[q * n + k]).toBe(left.keys[k] ? 0 : whole.data[q * n + k])
  })

  it('are whole if they are shown, or if nothing else would stay', () => {
    expect(drawnAxes([axis, axis], left, 'show').draw(whole)).toBe(whole)
    const all = { queries: axis.labels.map(() => true), keys: axis.labels.map(() => true) }
    expect(drawnAxes([axis, axis], all, 'hide').axes[1]).toBe(axis)
    expect(pickAxis(axis, null)).toBe(axis)
    expect(pickMap(whole, null, null)).toBe(whole)
  })

  it('have the largest visible value of a window', () => {
    expect(visibleCells(10, 0.2, 0.3)).toEqual([2, 5])
    expect(visibleCells(7, 0, 1)).toEqual([0, 7])
    const window = { left: 0.25, top: 0.5, size: 0.5 }
    let most = 0
    for (let q = 4; q < 8; q++) for (let k = 2; k < 6; k++) most = Math.max(most, Math.abs(whole.data[q * n + k]))
    expect([n, visibleMax(whole, window)]).toEqual([8, most])
  })
})
