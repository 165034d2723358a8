import { describe, expect, it } from 'vitest'
import { headsOf, includesHead, nearestHead, scatter, scatterTiles, subsetOf } from '../../src/lib/data/subset'
import { headings } from '../../src/marks/grid-painter'

const some = { layers: [1, 4], heads: [0, 5] }

describe('which heads were analysed', () => {
  it('is nothing to say where all were, or all up to one', () => {
    expect(subsetOf([0, 1, 2], [0, 1])).toBeNull()
    expect(subsetOf([], [])).toBeNull()
    expect(subsetOf([0, 2], [0, 1])).toEqual({ layers: [0, 2], heads: [0, 1] })
    expect(subsetOf([0, 1], [3])).toEqual({ layers: [0, 1], heads: [3] })
  })

  it('decides which head is open', () => {
    const subset = { layers: 5, heads: 6, subset: some }
    expect(nearestHead(subset, { layer: 4, head: 5 })).toEqual({ layer: 4, head: 5 })
    expect(nearestHead(subset, { layer: 9, head: 1 })).toEqual({ layer: 4, head: 0 })
    expect(nearestHead({ layers: 2, heads: 3, subset: null }, { layer: 5, head: 1 })).toEqual({ layer: 1, head: 1 })
    expect(includesHead(subset, { layer: 4, head: 0 })).toBe(true)
    expect(includesHead(subset, { layer: 4, head: 1 })).toBe(false)
    expect(includesHead({ layers: 2, heads: 3, subset: null }, { layer: 2, head: 0 })).toBe(false)
  })
})

describe('values of some heads', () => {
  it('stand at their own numbers', () => {
    const wide = scatter(
      [
        [1, 2],
        [3, 4],
      ],
      some,
      null,
    )
    expect([wide.length, wide[0].length]).toEqual([5, 6])
    expect([wide[1][0], wide[1][5], wide[4][0], wide[4][5]]).toEqual([1, 2, 3, 4])
    expect(wide.flat().filter((value) => value === null)).toHaveLength(26)
  })

  it('of a whole layer stand at head 0', () => {
    const wide = scatter([[1], [3]], some, null)
    expect([wide[1][0], wide[1][5], wide[4][0]]).toEqual([1, null, 3])
  })

  it('of a single head are found by its number and as those of the layer', () => {
    const wide = scatter([[7]], { layers: [2], heads: [3] }, null)
    expect([wide[2][0], wide[2][1], wide[2][3]]).toEqual([7, null, 7])
  })

  it('take their thumbnails along', () => {
    const tiles = {
      bytes: Uint8Array.of(1, 2, 3, 4),
      scale: Float32Array.of(1, 2, 3, 4),
      offset: Float32Array.of(5, 6, 7, 8),
      layers: 2,
      heads: 2,
      rows: 1,
      cols: 1,
    }
    const wide = scatterTiles(tiles, some)
    expect([wide.layers, wide.heads]).toEqual([5, 6])
    expect([wide.bytes[6], wide.bytes[11], wide.bytes[24], wide.bytes[29]]).toEqual([1, 2, 3, 4])
    expect([wide.scale[11], wide.offset[11]]).toEqual([2, 6])
    expect(wide.scale[0]).toBeNaN()
  })
})

describe('the grid of some heads', () => {
  const layout = { layers: 2, heads: 2, cell: 30, gap: 1 }

  it('has a row per layer and a column per head that was analysed', () => {
    expect(headsOf(some, false)).toEqual([
      { layer: 1, head: 0 },
      { layer: 1, head: 5 },
      { layer: 4, head: 0 },
      { layer: 4, head: 5 },
    ])
    expect(headsOf(some, true)).toEqual([
      { layer: 1, head: 0 },
      { layer: 4, head: 0 },
    ])
  })

  it('is headed by their numbers, and sorted heads by none', () => {
    expect(headings({ ...layout, order: headsOf(some, false), subset: some })).toEqual(some)
    expect(headings({ ...layout, order: [] })).toEqual({ layers: [], heads: [] })
    expect(headings(layout)).toEqual({ layers: [0, 1], heads: [0, 1] })
  })
})
