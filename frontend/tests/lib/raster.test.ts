import { describe, expect, it } from 'vitest'
import { random } from '../../gallery/maps'
import {
  dequantise,
  difference,
  type Matrix,
  ownScale,
  tileMatrix,
  tilesMax,
  topIndices,
} from '../../src/lib/maths/matrix'
import { cellSpans, highest, moveWindow, rasterise, WHOLE, windowAt, zoomWindow } from '../../src/lib/maths/raster'
import { colourIndex, type Scale } from '../../src/lib/maths/scale'

const table = Uint32Array.from({ length: 256 }, (_, i) => i)
const linear: Scale = { kind: 'linear', signed: true, max: 1 }

describe('rasterise', () => {
  it('gives every cell the same number of pixels where they divide', () => {
    expect([...cellSpans(3, 6, 0, 1)]).toEqual([0, 1, 0, 1, 1, 2, 1, 2, 2, 3, 2, 3])
  })

  it('keeps the strongest of many cells under one pixel, with its sign', () => {
    const data = new Float32Array(100 * 100)
    data[57 * 100 + 3] = -0.8
    const pixels = new Uint32Array(25)
    rasterise({ data, rows: 100, cols: 100, exact: true }, linear, table, pixels, [5, 5], WHOLE)
    expect(pixels[2 * 5 + 0]).toBe(colourIndex(-0.8, linear))
    expect([...pixels].filter((colour) => colour !== 128)).toHaveLength(1)
  })

  it('agrees with colouring cell by cell', () => {
    const next = random(3)
    const map: Matrix = { data: Float32Array.from({ length: 64 }, () => 2 * next() - 1), rows: 8, cols: 8, exact: true }
    for (const kind of ['linear', 'sqrt', 'log'] as const) {
      const pixels = new Uint32Array(64)
      rasterise(map, { ...linear, kind }, table, pixels, [8, 8])
      const wrong = map.data.filter((value, i) => Math.abs(pixels[i] - colourIndex(value, { ...linear, kind })) > 1)
      expect(wrong).toHaveLength(0)
    }
  })

  it('pools by magnitude whatever the signs, and passes over entries without a reading', () => {
    const next = random(5)
    const data = Float32Array.from({ length: 40 * 40 }, () =>
      next() < 0.2 ? Number.NaN : next() ** 8 * (next() < 0.5 ? -1 : 1),
    )
    for (let row = 0; row < 40; row++) data[row * 40] = 0.01 * row
    const pixels = new Uint32Array(13 * 11)
    rasterise({ data, rows: 40, cols: 40, exact: true }, linear, table, pixels, [13, 11])
    const [across, down] = [cellSpans(40, 13, 0, 1), cellSpans(40, 11, 0, 1)]
    const strongest = Array.from(pixels, (_, at) => {
      const [x, y] = [at % 13, Math.floor(at / 13)]
      const under = [...data].filter((value, i) => {
        const [col, row] = [i % 40, Math.floor(i / 40)]
        return (
          !Number.isNaN(value) &&
          col >= across[2 * x] &&
          col < across[2 * x + 1] &&
          row >= down[2 * y] &&
          row < down[2 * y + 1]
        )
      })
      return under.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most), 0)
    })
    expect(strongest.some((value) => value < -0.1)).toBe(true)
    expect([...pixels].filter((colour, at) => Math.abs(colour - colourIndex(strongest[at], linear)) > 1)).toHaveLength(
      0,
    )
  })
})

describe('matrix', () => {
  it('reads bytes as offset + scale * byte', () => {
    expect([...dequantise(Uint8Array.of(0, 128, 255), 0.5, -64)]).toEqual([-64, 0, 63.5])
  })

  it('finds one thumbnail among many', () => {
    const tiles = {
      bytes: Uint8Array.from({ length: 16 }, (_, i) => i),
      scale: Float32Array.of(1, 1, 2, 1),
      offset: Float32Array.of(0, 0, -40, 0),
      layers: 2,
      heads: 2,
      rows: 2,
      cols: 2,
    }
    expect([...tileMatrix(tiles, 1, 0).data]).toEqual([-24, -22, -20, -18])
    expect(tilesMax(tiles)).toBe(24)
  })

  it('puts a thumbnail on its own scale', () => {
    const tile: Matrix = { data: Float32Array.of(0.5, -1, 0.25, 0), rows: 2, cols: 2, exact: false }
    expect([...ownScale({ ...tile, data: tile.data.map((value) => value / 10) }).data]).toEqual([...tile.data])
  })

  it('subtracts, and refuses maps of different texts', () => {
    const a: Matrix = { data: Float32Array.of(1, 2), rows: 1, cols: 2, exact: true }
    expect([...difference(a, { ...a, data: Float32Array.of(3, 1) }).data]).toEqual([-2, 1])
    expect(() => difference(a, { ...a, cols: 1 })).toThrow('shape')
  })

  it('ranks by magnitude', () => {
    expect(topIndices(Float32Array.of(0.1, -0.9, 0.5, 0.2), 3)).toEqual([1, 2, 3])
  })
})

describe('windows on a map', () => {
  it('stay inside the map and never show fewer than four cells', () => {
    expect(windowAt(0.9, -1, 0.5, 40)).toEqual({ left: 0.5, top: 0, size: 0.5 })
    expect(windowAt(0, 0, 0.001, 40).size).toBe(0.1)
    expect(windowAt(0, 0, 0.1, 3)).toBe(WHOLE)
  })

  it('keep the cell under the pointer when they zoom', () => {
    const window = windowAt(0.2, 0.3, 0.5, 512)
    const [x, y] = [0.25, 0.75]
    const closer = zoomWindow(window, 0.5, [x, y], 512)
    expect(closer.left + x * closer.size).toBeCloseTo(window.left + x * window.size)
    expect(closer.top + y * closer.size).toBeCloseTo(window.top + y * window.size)
    expect(zoomWindow(window, 4, [x, y], 512)).toBe(WHOLE)
  })

  it('move as far as a cell needs, and no further', () => {
    const window = windowAt(0.5, 0.5, 0.1, 100)
    expect(moveWindow(window, [0.555, 0.555], 100)).toEqual(window)
    expect(moveWindow(window, [0.205, 0.555], 100).left).toBeCloseTo(0.2)
    expect(moveWindow(window, [0.205, 0.555], 100).top).toBe(0.5)
    expect(moveWindow(window, [0.805, 0.995], 100).left).toBeCloseTo(0.71)
  })
})

describe('bars thinner than a pixel', () => {
  it('keep the highest value under each', () => {
    expect(highest([1, 3, null, 2, -1, -2, null, null], 4)).toEqual([3, 2, -1, null])
    expect(highest([0.5, 0.25, 0.75], 2)).toEqual([0.5, 0.75])
  })
})
