import { describe, expect, it } from 'vitest'
import {
  adjacent,
  cellValue,
  columnOf,
  type Detail,
  drawnPool,
  drawnView,
  entriesOf,
  isLarge,
  isLong,
  isSharp,
  largestVisible,
  overviewPool,
  partFor,
  placeDetail,
  rowOf,
  wantedPool,
} from '../../src/lib/maths/details'
import type { Matrix } from '../../src/lib/maths/matrix'
import { type View, WHOLE, type Window, windowAt } from '../../src/lib/maths/raster'

/** The entry of a query and a key is unlike any other. */
const entry = (query: number, key: number) => query * 1000 + key

function detail(queries: readonly [number, number], keys: readonly [number, number], pool = 1): Detail {
  const [rows, cols] = [queries, keys].map(([from, to]) => Math.ceil((to - from) / pool))
  const data = Float32Array.from({ length: rows * cols }, (_, at) =>
    entry(queries[0] + Math.floor(at / cols) * pool, keys[0] + (at % cols) * pool),
  )
  return { pool, queries, keys, map: { data, rows, cols, exact: pool === 1 } }
}

const overview: Matrix = { data: new Float32Array(100).fill(7), rows: 10, cols: 10, exact: false }

describe('the part for a window', () => {
  it('is none of a map that is read as a whole, nor of a whole long one', () => {
    expect([overviewPool(2048, 2048), overviewPool(2049, 100)]).toEqual([1, 3])
    expect([isLong([1, 1, 2048, 64]), isLong([1, 1, 64, 4096]), isLong(undefined)]).toEqual([false, true, false])
    expect(partFor(WHOLE, 2048, 2048)).toBeUndefined()
    expect(partFor(WHOLE, 8192, 8192)).toBeUndefined()
  })

  it('is one of a large map, too, where there is only a thumbnail', () => {
    expect([isLarge([1, 1, 1024, 64]), isLarge([1, 1, 64, 1025]), isLarge(undefined)]).toEqual([false, true, false])
    const part = partFor({ top: 0.5, left: 0, size: 0.1 }, 2048, 2048, Number.POSITIVE_INFINITY)
    expect(part).toEqual({ pool: 1, queries: [1024, 1280], keys: [0, 256] })
  })

  it('has every visible entry, at most 1,024 along a side, and is sharp where 768 are visible', () => {
    for (const count of [2049, 8192, 32768]) {
      for (let size = 1; size * count > 4; size /= 1.7) {
        const window = windowAt(0.37, 0.61, size, count)
        const part = partFor(window, count, count)
        if (!part) {
          expect(size * count).toBeGreaterThan(768)
          continue
        }
        for (const [span, start] of [[part.queries, window.top] as const, [part.keys, window.left] as const]) {
          expect(span[0]).toBeLessThanOrEqual(start * count + 1e-6)
          expect(span[1]).toBeGreaterThanOrEqual(Math.min(count, (start + window.size) * count) - 1e-6)
          expect((span[1] - span[0]) / part.pool).toBeLessThanOrEqual(1024)
        }
        expect(isSharp(window, count, count)).toBe(part.pool === 1)
        if (size * count <= 767) expect(part.pool).toBe(1)
      }
    }
  })

  it('stays the same while a window moves a little', () => {
    const at = (left: number) => partFor({ left, top: 0.5, size: 0.05 }, 8192, 8192)
    expect(at(0.251)).toEqual(at(0.252))
  })
})

describe('a part in a window', () => {
  it('covers the pixels of its tokens and no others', () => {
    const side = 500
    const windows: Window[] = [WHOLE, { top: 0.1, left: 0.3, size: 0.05 }, { top: 0.121, left: 0.307, size: 0.011 }]
    for (const window of windows) {
      for (const part of [detail([384, 640], [1024, 1536]), detail([0, 1001], [900, 1100], 4)]) {
        const placed = placeDetail(part, [3000, 4000], window, side)
        for (let pixel = 0; pixel < side; pixel++) {
          const [from, to] = [pixel, pixel + 1].map((at) => (window.left + (at / side) * window.size) * 4000)
          const inside = from >= part.keys[0] - 1e-6 && to <= part.keys[1] + 1e-6
          expect(placed !== undefined && pixel >= placed.x[0] && pixel < placed.x[1]).toBe(
            placed !== undefined && inside,
          )
          if (!placed || !inside) continue
          const { left, width } = placed.view
          const cell = (left + ((pixel - placed.x[0]) / (placed.x[1] - placed.x[0])) * width) * part.map.cols
          expect(part.keys[0] + cell * part.pool).toBeCloseTo(from, 4)
        }
      }
    }
  })

  it('is nowhere in a window beside it', () => {
    expect(
      placeDetail(detail([0, 100], [0, 100]), [4000, 4000], { top: 0.5, left: 0.5, size: 0.1 }, 500),
    ).toBeUndefined()
  })
})

describe('values', () => {
  const near = detail([128, 256], [384, 512])

  it('are read in the cells of an overview, of which the last has fewer tokens', () => {
    const [tokens, pool] = [8161, 8]
    const { map } = detail([0, tokens], [0, tokens], pool)
    const pooled = { ...map, pool }
    for (const token of [0, 7, 8, 4079, 4080, 8151, 8159, 8160]) {
      const first = Math.floor(token / pool) * pool
      const { value } = cellValue(pooled, [], [[token], tokens], [[token], tokens])
      expect([token, value]).toEqual([token, entry(first, first)])
    }
    const { top, height } = drawnView(pooled, [tokens, tokens], WHOLE, 512) as View
    expect([top, height * map.rows]).toEqual([0, expect.closeTo(tokens / pool, 6)])
    expect(drawnView(overview, [tokens, tokens], WHOLE, 512)).toBe(WHOLE)
  })

  it('are exact where a part has them, and about those of the overview elsewhere', () => {
    expect(cellValue(overview, [near], [[130], 4000], [[400], 4000])).toEqual({ exact: true, value: entry(130, 400) })
    expect(cellValue(overview, [near], [[130], 4000], [[512], 4000])).toEqual({ exact: false, value: 7 })
    expect(cellValue(overview, [detail([128, 256], [384, 512], 2)], [[130], 4000], [[400], 4000]).exact).toBe(false)
  })

  it('of several tokens are summed over keys and averaged over queries', () => {
    const sums = [130, 131].map((query) => entry(query, 400) + entry(query, 402))
    const { value } = cellValue(overview, [near], [[130, 131], 4000], [[400, 402], 4000])
    expect(value).toBe((sums[0] + sums[1]) / 2)
  })

  it('of a rectangle come from one part', () => {
    const found = entriesOf(
      [near],
      [
        [200, 203],
        [390, 392],
      ],
    )
    expect(found && [...found.data]).toEqual([200, 201, 202].flatMap((query) => [entry(query, 390), entry(query, 391)]))
    expect(
      entriesOf(
        [near],
        [
          [200, 257],
          [390, 392],
        ],
      ),
    ).toBeUndefined()
  })
})

describe('lines of a long map', () => {
  const rows = detail([7, 9], [0, 400])
  const columns = detail([0, 300], [20, 23])

  it('are the mean of rows, and the sum of columns', () => {
    expect(rowOf([columns, rows], [7, 9], 400)![123]).toBe((entry(7, 123) + entry(8, 123)) / 2)
    expect(columnOf([columns, rows], [20, 22], 300)![55]).toBe(entry(55, 20) + entry(55, 21))
    expect(rowOf([columns, rows], [7, 10], 400)).toBeUndefined()
    expect(columnOf([rows], [20, 22], 300)).toBeUndefined()
  })

  it('are read of adjacent tokens', () => {
    expect(adjacent([4, 3, 5])).toEqual([3, 6])
    expect([adjacent([]), adjacent([3, 5]), adjacent(Array.from({ length: 99 }, (_, i) => i))]).toEqual([
      undefined,
      undefined,
      undefined,
    ])
  })
})

describe('how sharp a window is drawn', () => {
  const window = { top: 0.5, left: 0.5, size: 0.05 }
  const part = partFor(window, 8192, 8192)!

  it('is that of the sharpest part with all of it, otherwise of the overview', () => {
    const fine = { ...detail(part.queries, part.keys), map: overview }
    const pooled = { ...overview, pool: 8 }
    expect(drawnPool(overview, [], window, 8192, 8192)).toBe(Number.POSITIVE_INFINITY)
    expect(drawnPool(pooled, [], window, 8192, 8192)).toBe(8)
    expect(drawnPool(pooled, [fine], window, 8192, 8192)).toBe(1)
    expect(drawnPool(pooled, [fine], { ...window, left: 0.6 }, 8192, 8192)).toBe(8)
    expect(drawnPool({ ...overview, exact: true }, [], WHOLE, 10, 10)).toBe(1)
  })

  it('decides what the largest visible value is', () => {
    const map = detail(part.queries, part.keys)
    const [last] = [8192 * 0.55].map(Math.ceil)
    expect(largestVisible(overview, [], window, 8192, 8192)).toBe(7)
    expect(largestVisible(overview, [map], window, 8192, 8192)).toBe(entry(last - 1, last - 1))
    const pooled = detail(part.queries, part.keys, 2)
    expect(largestVisible(overview, [pooled], window, 8192, 8192)).toBe(
      entry(last - (last % 2 || 2), last - (last % 2 || 2)),
    )
  })

  it('is wanted to be a pixel or so', () => {
    expect([wantedPool(window, 8192, 8192), wantedPool(WHOLE, 8192, 8192), wantedPool(WHOLE, 99, 99)]).toEqual([
      1, 8, 1,
    ])
  })
})
