import { describe, expect, it } from 'vitest'
import { tokenAxis } from '../../src/lib/maths/axis'
import type { Detail } from '../../src/lib/maths/details'
import type { Matrix } from '../../src/lib/maths/matrix'
import { NO_SINKS } from '../../src/state/left-out'
import { DrawnMap } from '../../src/views/head/drawn-map.svelte'

const matrix = (n: number, exact: boolean): Matrix => ({
  data: new Float32Array(n * n).fill(0.5),
  rows: n,
  cols: n,
  exact,
})
const token = { text: 'a', id: 0, start: 0, end: 1, word: 0, segment: 0, kind: 'word' } as const
const axis = tokenAxis(Array.from({ length: 8 }, () => token))
const part: Detail = { pool: 4, queries: [0, 8], keys: [0, 8], map: matrix(2, true) }
const words = {
  title: '',
  warning: '',
  label: '',
  graph: '',
  source: '',
  scale: { kind: 'linear', signed: false, max: 1 },
} as const
const hand = { hover: () => {}, pin: () => {}, select: () => {} }

const drawn = (map: Matrix) =>
  new DrawnMap(
    {
      map: () => map,
      axes: () => [axis, axis],
      details: () => [part],
      sums: () => undefined,
      sinks: () => NO_SINKS,
      special: () => 'show',
      byRow: () => false,
      lit: () => ({ queries: [], keys: [], box: null }),
    },
    hand,
  ).panel(words)

describe('parts of a map', () => {
  it('are drawn over something coarse, and not over the map itself', () => {
    expect(drawn(matrix(2, false))?.details).toEqual([part])
    expect(drawn(matrix(8, true))?.details).toEqual([])
  })
})
