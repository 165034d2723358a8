import { describe, expect, it } from 'vitest'
import { type Highlight, NOTHING } from '../../src/lib/maths/highlight'
import { WHOLE } from '../../src/lib/maths/raster'
import { clipPins, parsePins, parseZoom, writePins, writeZoom } from '../../src/lib/text/pins'

describe('pins', () => {
  const some: Highlight[] = [
    NOTHING,
    { queries: [3], keys: [], box: null },
    { queries: [5, 2], keys: [0, 1, 2, 7], box: null },
    { queries: [], keys: [4], box: { queries: [3, 7], keys: [0, 1] } },
    { queries: [], keys: [], box: { queries: null, keys: [2, 5] } },
  ]
  it.each(some)('survive the address: %j', (pins) => {
    expect(parsePins(writePins(pins))).toEqual(pins)
  })

  it('are short for many neighbours', () => {
    expect(writePins({ queries: [4, 5, 6], keys: [9], box: { queries: [3, 7], keys: null } })).toBe('q4-6 k9 Q3-6')
  })

  it.each(['', 'x', 'q-1', 'q7-3', 'q1e5', 'k0-99999', 'Q', 'q 3 k', '<img>'])('ignore %j', (text) => {
    expect(parsePins(text)).toEqual(NOTHING)
  })

  it('of tokens that a map lacks do not exist', () => {
    const pins = parsePins('q2 q9 k3-8 Q4-20 K5-6')
    expect(clipPins(pins, [10, 5])).toEqual({ queries: [2, 9], keys: [3, 4], box: null })
    expect(clipPins(pins, [8, 8]).box).toEqual({ queries: [4, 8], keys: [5, 7] })
    expect(clipPins(parsePins('q9'), [4, 4])).toBe(NOTHING)
  })
})

describe('zoom', () => {
  it('survives the address', () => {
    const window = { left: 0.25, top: 0.125, size: 0.5 }
    expect(parseZoom(writeZoom(window))).toEqual(window)
    expect(writeZoom(WHOLE)).toBe('')
  })

  it.each(['', '1', 'a b c', '0 0 1', '0 0 0', '0 0 -1', '0 0 0.5 0.5', '0 0 NaN'])(
    'is the whole map for %j',
    (text) => {
      expect(parseZoom(text)).toBe(WHOLE)
    },
  )

  it('stays within the map', () => {
    expect(parseZoom('0.9 -3 0.5')).toEqual({ left: 0.5, top: 0, size: 0.5 })
  })
})
