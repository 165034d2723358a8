import { describe, expect, it } from 'vitest'
import { projectionFactors, remainder, wholeMap } from '../../src/lib/maths/factors'

// The cases of api/factors.json are compared with Python; these differ by less than factors may.
const whole = wholeMap(Float32Array.of(1, 0, 0, 0, 0.4, 0.6, 0, 0, 0.5, 5e-6, 0.5, 0, 0.1, 0.2, 0.3, 0.4), 4)
const part = projectionFactors({
  coefficients: { data: Float32Array.of(0), width: 1 },
  basis: { data: Float32Array.of(1, 1, 1, 1), width: 1 },
  first: Float32Array.of(1, 0, 0, 0.4, 0.600004, 0, 0.2, 0, 0.8),
  causal: true,
})
const expected = [0, 0, 0, 0, 0, 0, 0, 0, 0.3, 5e-6, -0.3, 0, 0.1, 0.2, 0.3, 0.4]

describe('the difference of two maps', () => {
  it('is nothing in a row of rounding, and otherwise what it is', () => {
    const out = new Float32Array(16)
    remainder(whole, part).fill(out, [0, 4], [0, 4])
    for (const [i, entry] of expected.entries()) expect(out[i]).toBeCloseTo(entry, 7)
  })

  it('is the same in every window', () => {
    const out = new Float32Array(1)
    for (const [i, entry] of expected.entries()) {
      const [row, key] = [Math.floor(i / 4), i % 4]
      remainder(whole, part).fill(out, [row, row + 1], [key, key + 1])
      expect(out[0]).toBeCloseTo(entry, 7)
    }
  })
})
