import { describe, expect, it } from 'vitest'
import { isolate, placeName, quotedPlace } from '../../src/lib/text/names'

describe('names of tokens', () => {
  const axis = { labels: ['[CLS]', 'the', 'river', 'the', '\u05dc'], start: [0, 1, 2, 14, 15] }

  it('carry their position only if the word occurs more than once', () => {
    expect([0, 1, 2, 3].map((place) => placeName(axis, place))).toEqual([
      '[CLS]',
      'the\u2081',
      'river',
      'the\u2081\u2084',
    ])
    expect([2, 3].map((place) => quotedPlace(axis, place))).toEqual(['\u201criver\u201d', '\u201cthe\u201d (#14)'])
  })

  it('do not reorder the sentence around them', () => {
    expect(placeName(axis, 4)).toBe('\u2068\u05dc\u2069')
    expect(quotedPlace(axis, 4)).toBe('\u2068\u201c\u05dc\u201d\u2069')
    for (const text of ['\u202ereversed', 'a\u2067b', '\u0645']) expect(isolate(text)).toBe(`\u2068${text}\u2069`)
    for (const text of ['caf\u00e9', '[SEP]', '\u6d77', '\u{1f600}', '12']) expect(isolate(text)).toBe(text)
  })
})
