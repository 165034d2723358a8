import { describe, expect, it } from 'vitest'
import {
  everyHead,
  headPoints,
  inRanges,
  insidePolygon,
  niceTicks,
  rankCorrelation,
  scatterCsv,
  spanOfValues,
} from '../../src/lib/maths/scatter'

const point = (x: number, y: number) => ({ layer: 0, head: 0, x, y })

describe('scatter of heads', () => {
  it('leaves out heads without a reading, and counts them', () => {
    const { points, missing } = headPoints(
      [
        [1, null],
        [3, 4],
      ],
      [
        [5, 6],
        [null, 8],
      ],
      everyHead(2, 2),
    )
    expect(points).toEqual([
      { layer: 0, head: 0, x: 1, y: 5 },
      { layer: 1, head: 1, x: 4, y: 8 },
    ])
    expect(missing).toBe(2)
    expect(scatterCsv(points, 'entropy', 'rank.effective')).toBe(
      'layer,head,entropy,rank.effective\n0,0,1,5\n1,1,4,8\n',
    )
  })

  it('finds what a lasso contains, also one that is not convex', () => {
    const corners = [
      [0, 0],
      [4, 0],
      [4, 4],
      [2, 1],
      [0, 4],
    ] as const
    expect(
      [
        [1, 1],
        [3, 1],
        [2, 3],
        [5, 1],
        [2, 0.5],
      ].map(([x, y]) => insidePolygon([x, y], corners)),
    ).toEqual([true, true, false, false, true])
  })

  it('finds what two ranges contain, with their ends', () => {
    expect(inRanges(point(1, 2), [1, 3], [-Infinity, 2])).toBe(true)
    expect(inRanges(point(1, 2.1), [1, 3], [-Infinity, 2])).toBe(false)
  })

  it.each([
    [
      [0, 1],
      [0, 0.2, 0.4, 0.6, 0.8, 1],
    ],
    [
      [-0.12, 2.1],
      [0, 0.5, 1, 1.5, 2],
    ],
    [
      [97, 103],
      [98, 100, 102],
    ],
  ] as const)('has round ticks within %j', (range, expected) => {
    expect(niceTicks(range, 5)).toEqual(expected)
  })

  it('spans equal and missing values', () => {
    expect(spanOfValues([])).toEqual([0, 1])
    expect(spanOfValues([3, 3])).toEqual([0, 6])
    expect(spanOfValues([0])).toEqual([-1, 1])
  })

  it('correlates ranks, with ties', () => {
    expect(rankCorrelation([point(1, 1), point(2, 10), point(3, 100)])).toBeCloseTo(1)
    expect(rankCorrelation([point(1, 3), point(2, 2), point(3, 1)])).toBeCloseTo(-1)
    // Deviations of the ranks: -1.5, 0, 0, 1.5 and 0.5, -1.5, 1.5, -0.5.
    expect(rankCorrelation([point(1, 3), point(2, 1), point(2, 4), point(4, 2)])).toBeCloseTo(-0.31622776)
    expect(rankCorrelation([point(1, 1), point(1, 2), point(1, 3)])).toBeNaN()
  })
})
