/** The numbers below a legend: both ends always, the middle where it fits. */
import { describe, expect, it } from 'vitest'
import { numbersBelow } from '../../src/marks/legend-painter'

describe('the numbers below a legend', () => {
  const texts = (max: number, width: number, signed = false) =>
    numbersBelow({ kind: 'sqrt', signed, max }, width).map(({ text }) => text)

  it('leave out the middle one where it would touch another', () => {
    expect(texts(5e-4, 176)).toEqual(['0', '10\u207b\u2074', '5\u00b710\u207b\u2074'])
    expect(texts(5e-4, 100)).toEqual(['0', '5\u00b710\u207b\u2074'])
    expect(texts(0.96, 108)).toEqual(['0', '0.24', '0.96'])
    expect(texts(0.96, 92)).toEqual(['0', '0.96'])
  })

  it('of a signed scale are as wide at the left as at the right', () => {
    expect(texts(5e-4, 124, true)).toEqual(['\u22125\u00b710\u207b\u2074', '0', '5\u00b710\u207b\u2074'])
    expect(texts(5e-4, 100, true)).toEqual(['\u22125\u00b710\u207b\u2074', '5\u00b710\u207b\u2074'])
  })
})
