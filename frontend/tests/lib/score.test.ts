import { expect, it } from 'vitest'
import { largestKeys, pairsTotal, scorePairs, scoreParts, termsOf } from '../../src/lib/data/score'

const row = {
  query: 3,
  key: 1,
  terms: {
    rotation: [0, 1, 2, 3, null],
    content: [1, 1, 1, 1, null],
    score: [1, 2, 3, 4, null],
    weight: [0.2, 0.1, 0.3, 0.4, null],
  },
}

it('keys are listed by weight, and the key of the score among them', () => {
  expect(largestKeys(row, 9)).toEqual([3, 2, 0, 1])
  expect(largestKeys(row, 2)).toEqual([3, 1])
  expect(termsOf(row)).toEqual(['content', 'rotation'])
})

it('parts are listed by size, whatever the sign', () => {
  const parts = scoreParts(
    [
      [0.5, -2],
      [0, null],
    ],
    { mlp: [1, 0], embedding: [0.25], cross: [3, 0.5], bias: [-0.75] },
  )
  expect(parts.map(({ name, value }) => [name, value])).toEqual([
    ['cross', 3.5],
    ['0.1', -2],
    ['feed-forward 0', 1],
    ['biases', -0.75],
    ['0.0', 0.5],
    ['embedding', 0.25],
  ])
  expect(parts[1].head).toEqual({ layer: 0, head: 1 })
})

it('pairs are named by their parts, and all of them sum to content and rotation', () => {
  const pairs = [
    { query: 'mlp 3', key: '0.1', value: 2 },
    { query: 'bias', key: 'embedding', value: -1 },
  ]
  expect(scorePairs({ ...row, pairs }).map(({ name, value }) => [name, value])).toEqual([
    ['feed-forward 3 × 0.1', 2],
    ['biases × embedding', -1],
  ])
  expect(scorePairs(row)).toEqual([])
  expect(pairsTotal(row)).toBe(2)
})
