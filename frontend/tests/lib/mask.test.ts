import { describe, expect, it } from 'vitest'
import { parseMask, writeMask } from '../../src/lib/text/mask'

describe('masked tokens in the address', () => {
  it('are in ascending order, once each', () => {
    expect(parseMask('7,3,7')).toEqual([3, 7])
    expect(writeMask([7, 3])).toBe('3,7')
  })

  it.each(['', 'x', '-1', '1.5', '99999'])('are none for %j', (text) => expect(parseMask(text)).toEqual([]))
})
