import { describe, expect, it } from 'vitest'
import { random } from '../../gallery/maps'
import { type Edges, type Rule, selectEdges } from '../../src/lib/maths/edges'
import type { Matrix } from '../../src/lib/maths/matrix'

const matrix = (rows: number[][]): Matrix => ({
  data: Float32Array.from(rows.flat()),
  rows: rows.length,
  cols: rows[0].length,
  exact: true,
})
function list(edges: Edges): number[][] {
  const pairs: number[][] = []
  edges.within([0, edges.map.rows], [0, edges.map.cols], (q, k) => pairs.push([q, k]))
  expect(edges.total).toBe(pairs.length)
  return pairs
}

/** The rule in its plainest form: sort, then take. */
function slow(map: Matrix, rule: Rule): number[][] {
  const edges: number[][] = []
  for (let q = 0; q < map.rows; q++) {
    const row = Array.from(map.data.subarray(q * map.cols, (q + 1) * map.cols), (value, k) => ({
      k,
      size: Math.abs(value),
    }))
    const ranked = row.filter(({ size }) => size > 0).sort((a, b) => b.size - a.size || a.k - b.k)
    const total = ranked.reduce((sum, { size }) => sum + size, 0)
    let sum = 0
    const taken: number[] = []
    for (const [i, { k, size }] of ranked.entries()) {
      if (
        rule.name === 'value'
          ? size < Math.fround(rule.value)
          : rule.name === 'top-k'
            ? i >= rule.k
            : sum >= (rule.mass - 1e-6) * total
      )
        break
      taken.push(k)
      sum += size
    }
    edges.push(...taken.sort((a, b) => a - b).map((k) => [q, k]))
  }
  return edges
}

describe('selectEdges', () => {
  it('takes the fewest keys that carry the share', () => {
    const map = matrix([
      [0.5, 0.3, 0.2],
      [0.1, 0.1, 0.8],
    ])
    expect(list(selectEdges(map, { name: 'mass', mass: 0.7 }))).toEqual([
      [0, 0],
      [0, 1],
      [1, 2],
    ])
  })

  it('takes seven of ten equal keys for 70 %', () => {
    const map = matrix([new Array(10).fill(0.1)])
    expect(list(selectEdges(map, { name: 'mass', mass: 0.7 })).map(([, k]) => k)).toEqual([0, 1, 2, 3, 4, 5, 6])
  })

  it('leaves skipped tokens out on both sides and never draws a zero', () => {
    const map = matrix([
      [0.9, 0.1, 0],
      [0.5, 0.5, 0],
      [0.2, -0.8, 0],
    ])
    const edges = selectEdges(map, { name: 'top-k', k: 3 }, [true, false, false])
    expect(list(edges)).toEqual([
      [1, 1],
      [2, 1],
    ])
  })

  it.each<Rule>([
    { name: 'mass', mass: 0.7 },
    { name: 'mass', mass: 1 },
    { name: 'top-k', k: 3 },
    { name: 'top-k', k: 100 },
    { name: 'value', value: 0.25 },
    { name: 'value', value: 2 },
  ])('agrees with the plain form: %o', (rule) => {
    const next = random(5)
    const signed = matrix(Array.from({ length: 40 }, () => Array.from({ length: 40 }, () => next() - 0.3)))
    const peaked = matrix(Array.from({ length: 40 }, () => Array.from({ length: 40 }, () => next() ** 30)))
    const ties = matrix(Array.from({ length: 40 }, () => Array.from({ length: 40 }, () => Math.round(4 * next()) / 4)))
    for (const map of [signed, peaked, ties]) expect(list(selectEdges(map, rule))).toEqual(slow(map, rule))
  })

  it('finds the same edges from either side', () => {
    const next = random(9)
    const map = matrix(Array.from({ length: 12 }, () => Array.from({ length: 9 }, next)))
    const edges = selectEdges(map, { name: 'top-k', k: 4 })
    const [leaving, arriving]: number[][][] = [[], []]
    for (let q = 0; q < 12; q++) edges.leaving(q, (...pair) => leaving.push(pair))
    for (let k = 0; k < 9; k++) edges.arriving(k, (...pair) => arriving.push(pair))
    expect(leaving).toEqual(list(edges))
    expect(arriving.sort(([q, k], [r, l]) => q - r || k - l)).toEqual(leaving)
    expect(leaving.every(([q, k]) => edges.weight(q, k) === map.data[q * 9 + k])).toBe(true)
  })

  it('knows whether any query looks ahead', () => {
    const causal = matrix([
      [1, 0],
      [0.4, 0.6],
    ])
    expect(selectEdges(causal, { name: 'mass', mass: 1 }).ahead).toBe(false)
    expect(selectEdges(matrix([[0.4, 0.6]]), { name: 'mass', mass: 1 }).ahead).toBe(true)
  })
})
