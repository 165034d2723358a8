import { describe, expect, it } from 'vitest'
import { readFactors } from '../../src/api/factors'
import { fileSource } from '../../src/api/file'
import { type Axes, type Axis, groupMap } from '../../src/lib/maths/axis'
import { sumError } from '../../src/lib/maths/matrix'
import { mergeMaps } from '../../src/lib/maths/merge'
import { computeFolded, computePart } from '../../src/lib/maths/tiles'
import cases from './factors.json'

/** A head that the server wrote, and the entries that it computed of it. */
interface Case {
  document: string
  map: number[][]
}

const bytesOf = (base64: string): ArrayBuffer => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).buffer
const { signal } = new AbortController()
const near = (found: ArrayLike<number>, expected: readonly number[]) => {
  expect(found.length).toBe(expected.length)
  expected.forEach((value, at) => {
    expect(Math.abs(found[at] - value)).toBeLessThan(1e-6 * Math.max(1, Math.abs(value)))
  })
}
const largest = (values: number[]) =>
  values.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most), 0)

describe.each(Object.entries<Case>(cases))('%s', (_name, { document, map }) => {
  const { factors, ...errors } = readFactors(bytesOf(document))
  const error = errors.error ?? 0
  const [rows, cols] = [map.length, map[0].length]

  it('has the entries that the server computes', async () => {
    expect([factors.queries, factors.keys]).toEqual([rows, cols])
    const { data, sums } = await computePart(factors, { pool: 1, queries: [0, rows], keys: [0, cols] })
    near(data, map.flat())
    near(
      sums.queries,
      map.map((row) => row.reduce((sum, value) => sum + Math.abs(value), 0)),
    )
    near(
      sums.keys,
      map[0].map((_, k) => map.reduce((sum, row) => sum + Math.abs(row[k]), 0)),
    )
    expect(error).toBeLessThan(2.1e-3 * Math.max(1, Math.abs(largest(map.flat()))))
  })

  it('rounds a sum over keys by what a row is rounded by, not by the largest error for each key', () => {
    expect(sumError(errors, 1)).toBeCloseTo(error, 5)
    expect(sumError(errors, 1000)).toBeLessThanOrEqual(cols * error + 1e-2)
    expect(sumError({ error: 1e-3 }, 1000)).toBe(1)
    const whole = { data: new Float32Array(rows * cols), rows, cols, exact: true, ...errors }
    const merged = mergeMaps([whole, whole], 'mean')
    expect(merged.error).toBe(error)
    expect(merged.rowError).toBeUndefined()
  })

  it('is folded as a whole map is', async () => {
    const axis = (count: number): Axis => {
      const start = Int32Array.from([0, 3, 4, 9, count])
      const of = Int32Array.from({ length: count }, (_, token) => start.findLastIndex((from) => from <= token))
      return {
        labels: ['a', 'b', 'c', 'd'],
        special: [false, false, false, false],
        start,
        of,
        sentences: [true, false, true, true],
      }
    }
    const axes: Axes = [axis(rows), axis(cols)]
    const whole = { data: Float32Array.from(map.flat()), rows, cols, exact: true }
    near(await computeFolded(factors, axes), Array.from(groupMap(whole, ...axes).data))
  })

  it('has windows, pooled or not', async () => {
    const window = map.slice(3, 10).map((row) => row.slice(2, 9))
    const part = { queries: [3, 10], keys: [2, 9] } as const
    near((await computePart(factors, { ...part, pool: 1 })).data, window.flat())
    const cells = [0, 3, 6].flatMap((q) =>
      [0, 3, 6].map((k) => largest(window.slice(q, q + 3).flatMap((row) => row.slice(k, k + 3)))),
    )
    near((await computePart(factors, { ...part, pool: 3 })).data, cells)
  })
})

describe('a page with factors', () => {
  const { document, map } = (cases as Record<string, Case>).causal
  const n = map.length
  const about = { layer_numbers: [2, 4], head_numbers: [5], maps: { weights: { shape: [2, 1, n, n] } } }
  const source = fileSource(async (path) => {
    if (path === '/analysis') return new TextEncoder().encode(JSON.stringify(about)).buffer
    return path === '/factors/weights/1.0' ? bytesOf(document) : undefined
  })
  const head = { layer: 4, head: 5 }

  it('has maps, parts of them and sums, each with a buffer of its own', async () => {
    const whole = await source.map('', 'weights', head, signal)
    near(whole.data, map.flat())
    expect(whole.error).toBeGreaterThan(0)
    const all = { pool: 2, queries: [0, n], keys: [0, n] } as const
    const overviews = [
      await source.mapPart!('', 'weights', head, all, signal),
      await source.mapPart!('', 'weights', head, all, signal),
    ]
    expect(overviews[0]).toMatchObject({ rows: Math.ceil(n / 2), cols: Math.ceil(n / 2), exact: false, pool: 2 })
    expect(overviews[0].data).toEqual(overviews[1].data)
    expect(overviews[0].data.buffer).not.toBe(overviews[1].data.buffer)
    const row = await source.mapPart!('', 'weights', head, { pool: 1, queries: [4, 5], keys: [0, n] }, signal)
    near(row.data, map[4])
    expect(row.exact).toBe(true)
    const { queries } = await source.sums!('', 'weights', head, signal)
    near(
      queries,
      map.map((row) => row.reduce((sum, value) => sum + value, 0)),
    )
  })

  it('has no reading of a head that was not chosen', async () => {
    const { data } = await source.map('', 'weights', { layer: 2, head: 5 }, signal)
    expect(data.every(Number.isNaN)).toBe(true)
  })
})
