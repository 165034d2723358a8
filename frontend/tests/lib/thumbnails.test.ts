import { expect, it } from 'vitest'
import { type Tiles, tileMatrix } from '../../src/lib/maths/matrix'
import { onlyRow, reachOf, stretchRow } from '../../src/lib/maths/thumbnails'

/** Bytes below and above 0, which is the byte 100. */
const tiles = (bytes: number[], heads: number): Tiles => ({
  bytes: Uint8Array.from(bytes, (byte) => byte + 100),
  scale: new Float32Array(heads).fill(0.5),
  offset: new Float32Array(heads).fill(-50),
  layers: 1,
  heads,
  rows: 2,
  cols: 2,
})

it('a scale reaches over all but a few heads', () => {
  const heads = Array.from({ length: 40 }, (_, head) => [0, head - 20, 0, 0]).flat()
  const one = tiles(heads, 40)
  // Of 40 heads 38 are within: the largest magnitude, 20 steps, is that of one head, and the next of two.
  expect(reachOf(one)).toEqual({ max: 9.5, beyond: 1 / 40 })
  expect(reachOf(tiles([4, 0, 0, -6], 1))).toEqual({ max: 3, beyond: 0 })
  expect(reachOf({ ...one, scale: one.scale.map(() => Number.NaN) })).toEqual({ max: 0, beyond: 0 })
})

it('a row that alone is not 0 is drawn over the whole height', () => {
  const one = tiles([0, 0, 4, -6, 0, 0, 0, 2], 2)
  expect(onlyRow(one)).toBe(1)
  expect([...tileMatrix(stretchRow(one, 1), 0, 0).data]).toEqual([2, -3, 2, -3])
  expect([...tileMatrix(stretchRow(one, 1), 0, 1).data]).toEqual([0, 1, 0, 1])
  expect(onlyRow(tiles([0, 2, 0, 0, 0, 0, 0, 2], 2))).toBeUndefined()
  expect(onlyRow(tiles([0, 0, 0, 0], 1))).toBeUndefined()
  // Bytes that only rounding keeps from 0.
  const rounded = { ...one, offset: one.offset.map((value) => value + 0.2) }
  expect(onlyRow(rounded)).toBe(1)
})
