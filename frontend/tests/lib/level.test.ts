import { expect, it } from 'vitest'
import { WHOLE } from '../../src/lib/maths/raster'
import { levelWords } from '../../src/lib/text/level'

it('says which part of a long map is visible, and how sharp it is', () => {
  const counts = { queries: 8192, keys: 8192 }
  expect(levelWords({ ...counts, window: WHOLE, drawn: Number.POSITIVE_INFINITY, wanted: 8 })).toEqual({
    part: 'all 8192 tokens',
    cell: 'a thumbnail',
    coarse: true,
  })
  expect(levelWords({ ...counts, window: { top: 0.5, left: 0, size: 0.125 }, drawn: 2, wanted: 2 })).toEqual({
    part: 'queries 4096 to 5119, keys 0 to 1023',
    cell: 'a cell is the largest of 2 \u00d7 2 entries',
    coarse: false,
  })
  const sharp = { ...counts, window: { top: 0, left: 0, size: 0.01 }, wanted: 1 }
  expect([1, 8].map((drawn) => levelWords({ ...sharp, drawn }).coarse)).toEqual([false, true])
})
