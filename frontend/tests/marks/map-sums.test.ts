import { expect, it } from 'vitest'
import { barLengths } from '../../src/marks/map-sums'

it('sums are as long as their logarithm, the largest below each pixel, whatever the window', () => {
  const sums = Float32Array.from({ length: 4000 }, (_, k) => (k === 1 ? 3999 : k % 100 === 0 ? 9 : 1))
  const bars = barLengths(sums, 0, 1, 40)
  expect(bars[0]).toBe(1)
  expect(bars[7]).toBeCloseTo(Math.log(10) / Math.log(4000))
  const near = barLengths(sums, 0.5, 0.01, 40)
  expect(near[0]).toBeCloseTo(Math.log(10) / Math.log(4000))
  expect(near[1]).toBeCloseTo(Math.log(2) / Math.log(4000))
  expect([...barLengths(new Float32Array(9), 0, 1, 3)]).toEqual([0, 0, 0])
})
