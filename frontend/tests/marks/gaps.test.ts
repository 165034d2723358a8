import { describe, expect, it } from 'vitest'
import { selectEdges } from '../../src/lib/maths/edges'
import { columnMeans, maxMagnitude, tilesMax, topIndices } from '../../src/lib/maths/matrix'
import { rasterise } from '../../src/lib/maths/raster'

const NONE = Number.NaN
const map = { data: Float32Array.of(0.5, 0.5, NONE, NONE, 0, 1), rows: 3, cols: 2, exact: true }
const table = Uint32Array.from({ length: 256 }, (_, i) => i)

describe('rows without a reading', () => {
  it('count for nothing', () => {
    expect([...columnMeans(map)]).toEqual([0.25, 0.75])
    expect(maxMagnitude(map.data)).toBe(1)
    expect(topIndices(map.data, 9)).toEqual([5, 0, 1, 4])
    expect(topIndices(Float32Array.of(NONE, 2), 2)).toEqual([1])
  })

  it('have no edges', () => {
    const edges = selectEdges(map, { name: 'top-k', k: 2 })
    const pairs: number[][] = []
    for (let q = 0; q < map.rows; q++) edges.leaving(q, (...pair) => pairs.push(pair))
    expect(pairs.map(([q]) => q)).toEqual([0, 0, 2])
    expect(edges.total).toBe(3)
  })

  it('are hatched, and only they', () => {
    const pixels = new Uint32Array(12 * 12)
    rasterise(map, { kind: 'linear', signed: false, max: 1 }, table, pixels, [12, 12], undefined, 7)
    const rows = Array.from({ length: 12 }, (_, y) => pixels.subarray(y * 12, (y + 1) * 12))
    expect(rows.map((row) => row.includes(7))).toEqual([0, 1, 2].flatMap((r) => Array(4).fill(r === 1)))
    expect([...rows[4]].filter((pixel) => pixel === 7)).toHaveLength(2)
    expect([...rows[4]].filter((pixel) => pixel === 0)).toHaveLength(10)
  })

  it('of heads that a layer lacks do not decide the scale', () => {
    const bytes = Uint8Array.of(255, 255)
    const sizes = { layers: 1, heads: 2, rows: 1, cols: 1 }
    expect(tilesMax({ bytes, scale: Float32Array.of(NONE, 0.5), offset: Float32Array.of(NONE, 0), ...sizes })).toBe(
      127.5,
    )
  })

  it('leave other tokens out of keys than of queries', () => {
    const cross = { data: Float32Array.of(1, 2, 3, 4, 5, 6), rows: 2, cols: 3, exact: true }
    const edges = selectEdges(cross, { name: 'top-k', k: 3 }, [false, true], [true, false, false])
    const keys: number[] = []
    edges.leaving(0, (_, key) => keys.push(key))
    expect(keys).toEqual([1, 2])
    expect(edges.total).toBe(2)
  })
})
