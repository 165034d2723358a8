import { describe, expect, it } from 'vitest'
import { random } from '../../gallery/maps'
import { selectEdges } from '../../src/lib/maths/edges'
import { boxBeyond, edgesWithin, litWithin, type Spans, windowSpans } from '../../src/lib/maths/graph-window'
import { WHOLE } from '../../src/lib/maths/raster'

describe('the part of a graph that a zoomed map shows', () => {
  const next = random(5)
  const map = { data: Float32Array.from({ length: 90 }, next), rows: 10, cols: 9, exact: true }
  const edges = selectEdges(map, { name: 'top-k', k: 4 })
  const spans: Spans = [
    [3, 8],
    [2, 6],
  ]
  const part = edgesWithin(edges, spans)

  it('has the connections of the whole between its tokens', () => {
    const [expected, found, leaving, arriving]: string[][] = [[], [], [], []]
    edges.within([3, 8], [2, 6], (q, k) => expected.push(`${q} ${k}`))
    part.within([0, 5], [0, 4], (q, k) => found.push(`${q + 3} ${k + 2}`))
    for (let q = 0; q < 5; q++) part.leaving(q, (row, k) => leaving.push(`${row + 3} ${k + 2}`))
    for (let k = 0; k < 4; k++) part.arriving(k, (q, column) => arriving.push(`${q + 3} ${column + 2}`))
    expect(expected.length).toBeGreaterThan(3)
    expect(found).toEqual(expected)
    expect(leaving).toEqual(expected)
    expect(arriving.sort()).toEqual([...expected].sort())
    expect(part.weight(1, 2)).toBe(map.data[4 * 9 + 4])
    const beyond: number[] = []
    part.within([0, 9], [0, 9], (q) => beyond.push(q))
    expect(beyond).toHaveLength(expected.length)
  })

  it('is that of the window, and one text where both sides are one', () => {
    expect(windowSpans(WHOLE, [10, 9], false)).toBeNull()
    expect(windowSpans({ top: 0.5, left: 0, size: 0.3 }, [10, 10], false)).toEqual([
      [5, 8],
      [0, 3],
    ])
    expect(windowSpans({ top: 0.5, left: 0, size: 0.3 }, [10, 10], true)).toEqual([
      [0, 8],
      [0, 8],
    ])
  })

  it('leads back to the tokens of the whole', () => {
    const lit = litWithin({ queries: [3, 9], keys: [2, 5, 0], box: { queries: [5, 9], keys: null } }, spans)
    expect(lit).toEqual({ queries: [0], keys: [0, 3], box: { queries: [2, 5], keys: null } })
    expect(boxBeyond({ queries: [2, 5], keys: null }, spans)).toEqual({ queries: [5, 8], keys: null })
  })
})
