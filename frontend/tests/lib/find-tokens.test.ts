import { describe, expect, it } from 'vitest'
import type { Token } from '../../src/lib/data/analysis'
import { findTokens } from '../../src/lib/text/find-tokens'

const TEXT = '\u{1f600} A Sammyadd, a sammyadd; badSammy.'
const characters = Array.from(TEXT)

/** Pieces of two characters, with [SEP] at the end. */
const tokens = [
  ...Array.from({ length: Math.ceil(characters.length / 2) }, (_, i) => ({
    text: characters.slice(2 * i, 2 * i + 2).join(''),
    start: 2 * i,
    end: Math.min(characters.length, 2 * i + 2),
    segment: 0,
    kind: 'word',
  })),
  { text: '[SEP]', start: 0, end: 0, segment: 0, kind: 'special' },
] as unknown as Token[]

const found = (wanted: string) =>
  findTokens(tokens, [TEXT, ''], wanted).map(([from, to]) =>
    tokens
      .slice(from, to)
      .map(({ text }) => text)
      .join(''),
  )

describe('a word in a text', () => {
  it('is found where words begin like it, in any case', () => {
    expect(found('Sammy')).toEqual(['Sammya', 'sammya'])
    expect(found('sammyadd')).toEqual(['Sammyadd', 'sammyadd'])
    expect(found('ammy')).toEqual([])
  })

  it('may begin with any sign, and be a special token', () => {
    expect(found(', a')).toEqual([', a '])
    expect(found('[sep]')).toEqual(['[SEP]'])
    expect(found('')).toEqual([])
  })
})
