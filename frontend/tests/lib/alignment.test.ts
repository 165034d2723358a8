import { describe, expect, it } from 'vitest'
import { nearestHeads } from '../../src/lib/maths/alignment'

describe('nearest heads', () => {
  const likeness = {
    cosine: [
      [1, 0.2],
      [null, 0.9],
    ],
    divergence: [
      [0, 0.1],
      [null, 0.4],
    ],
  }
  const names = (by: 'cosine' | 'divergence') =>
    nearestHeads(likeness, { layer: 0, head: 0 }, by).map(({ layer, head }) => `${layer}.${head}`)

  it('sorts by either number, without the head itself and those without a number', () => {
    expect(names('cosine')).toEqual(['1.1', '0.1'])
    expect(names('divergence')).toEqual(['0.1', '1.1'])
  })

  it('has cosines only for signed maps', () => {
    const [first] = nearestHeads({ ...likeness, divergence: null }, { layer: 1, head: 1 }, 'cosine')
    expect(first).toEqual({ layer: 0, head: 0, cosine: 1, divergence: null })
  })
})
