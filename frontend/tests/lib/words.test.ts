import { describe, expect, it } from 'vitest'
import type { Token } from '../../src/lib/data/analysis'
import { tokenAxis, wordAxis } from '../../src/lib/maths/axis'
import { cellNumber, cellPercent, float32, percent, short, tabular, weight } from '../../src/lib/text/format'
import { labelStep, shorten, tokenLabel } from '../../src/lib/text/labels'
import {
  attemptsSentence,
  attentionSentence,
  changeSentence,
  entropySentence,
  habitSentence,
  leverageSentence,
  nullShareSentence,
  progressSentence,
  SENTENCES,
  wholeOf,
} from '../../src/lib/text/words'

const token = (text: string, kind: Token['kind'] = 'word'): Token => ({
  text,
  id: 1,
  start: 0,
  end: 0,
  word: 0,
  segment: 0,
  kind,
})
const tokens = [token('[CLS]', 'special'), token('bank'), token('river'), token('bank')]

describe('sentences', () => {
  it('adds up tokens spelled alike', () => {
    expect(attentionSentence(Float32Array.of(0.2, 0.25, 0.3, 0.25), tokenAxis(tokens))).toBe(
      'Looks most at \u201cbank\u201d: 50\u00a0% of all weight, then \u201criver\u201d (30\u00a0%) and [CLS] (20\u00a0%).',
    )
  })

  it('speaks of words where these are read', () => {
    const pieces = [
      { ...token('un'), start: 0, end: 2 },
      { ...token('tangle', 'subword'), start: 2, end: 8 },
    ]
    const read = wordAxis([token('[CLS]', 'special'), ...pieces])
    expect(attentionSentence(Float32Array.of(0.4, 0.5, 0.1), read)).toBe(
      'Looks most at \u201cuntangle\u201d: 60\u00a0% of all weight, then [CLS] (40\u00a0%).',
    )
  })

  it('says what the numbers mean', () => {
    expect(nullShareSentence(0.612)).toBe('61\u00a0% of this map has no effect on the head\u2019s output.')
    expect(nullShareSentence(1e-9)).toBe('All of this map affects the output.')
    expect(entropySentence(Math.log(4), 12)).toBe('Entropy 1.4 nats: a query spreads over about 4 of 12 tokens.')
    expect(leverageSentence([0.05, 0.5, 0.9, 0.4], tokenAxis(tokens))).toBe(
      '90\u00a0% of the attention to \u201criver\u201d is effective, and 5.0\u00a0% of that to [CLS].',
    )
    expect(leverageSentence([0.05, 0.5, 0.9, 0.4], tokenAxis(tokens), [0])).toBe(
      '5.0\u00a0% of the attention to [CLS] is effective.',
    )
    expect(leverageSentence([0.05, 0.5, 0.9, 0.4], tokenAxis(tokens), [0, 2])).toBe(
      '5.0\u00a0% of the attention to [CLS] is effective, 90\u00a0% of that to \u201criver\u201d.',
    )
    expect(leverageSentence([0.05, 0.5, 0.9, 0.4], tokenAxis(tokens), [0, 1, 2, 3])).toContain('and 5.0')
    expect(leverageSentence([1, 1, 1, 1], tokenAxis(tokens))).toBe('All attention to every token is effective.')
  })

  it('names what the shares are of through another lens', () => {
    const whole = wholeOf({ name: 'effective', title: 'Effective attention' })
    expect(attentionSentence(Float32Array.of(0.2, 0.8), tokenAxis(tokens.slice(0, 2)), whole)).toBe(
      'Looks most at \u201cbank\u201d: 80\u00a0% of all effective attention, then [CLS] (20\u00a0%).',
    )
  })

  it('never says more tokens than there are', () => {
    const all = 'about 2048 of 2048 tokens.'
    for (const nats of [Math.log(2047.6), Math.log(2048), Math.log(2048.0004)])
      expect(entropySentence(nats, 2048)).toBe(`Entropy 7.6 nats: a query spreads over ${all}`)
    expect(SENTENCES.participation_ratio(2047.9, 2048)).toBe(`By squared weights, a query attends to ${all}`)
    expect(SENTENCES.absolute_entropy(Math.log(1236.4), 1300)).toContain('over about 1236 of 1300 tokens.')
    expect(SENTENCES.participation_ratio(0.999, 1)).toContain('about 1 of 1 tokens.')
  })

  it('says what changed and what to do', () => {
    expect(changeSentence('Text', true, false)).toBe('Text changed, too long for live. Press Enter to analyse')
    expect(changeSentence('Model', false, false)).toBe('Model changed. Press Analyse')
    expect(changeSentence('Text', false, true)).toBe('Showing the previous analysis')
  })

  it('names a habit only where it is one', () => {
    const map = (rows: number[][]) => ({ data: Float32Array.from(rows.flat()), rows: 3, cols: 3, exact: true })
    const before = [
      [1, 0, 0],
      [1, 0, 0],
      [0, 1, 0],
    ]
    expect(habitSentence(map(before))).toBe(
      '67\u00a0% of all weight goes to the previous token. 33\u00a0% of all weight goes to the token itself.',
    )
    const even = Array.from({ length: 3 }, () => [0.2, 0.2, 0.6])
    expect(habitSentence(map(even))).toBe('33\u00a0% of all weight goes to the token itself.')
    expect(
      habitSentence(
        map([
          [0, 0, 1],
          [0, 0, Number.NaN],
          [1, 0, 0],
        ]),
      ),
    ).toBe('')
  })

  it('has a sentence for every number that is no share of its own', () => {
    expect(SENTENCES.negative_share(0, 4)).toBe('Nothing in this map is negative.')
    expect(SENTENCES.participation_ratio(3.2, 12)).toBe(
      'By squared weights, a query attends to about 3.2 of 12 tokens.',
    )
  })

  it('shows tokens that cannot be seen', () => {
    expect(tokenLabel(token(' '))).toBe('\u2423')
    expect(tokenLabel(token('\n'))).toBe('\u21b5')
    expect(tokenLabel(token('<b>'))).toBe('<b>')
  })
})

describe('numbers and labels', () => {
  it('keep sensible digits and a real minus', () => {
    expect(weight(0.23141)).toBe('0.2314')
    expect(weight(-0.5)).toBe('\u22120.5000')
    expect(weight(0)).toBe('0')
    expect(short(0.027341)).toBe('0.027')
    expect(percent(0.043)).toBe('4.3\u00a0%')
  })

  it('write small numbers in one way, and only 0 as 0', () => {
    expect([7.2e-5, -7.2e-5, 1e-6, 0].map(weight)).toEqual([
      '7\u00b710\u207b\u2075',
      '\u22127\u00b710\u207b\u2075',
      '10\u207b\u2076',
      '0',
    ])
    expect([6e-4, -0.0444, 1234, 2e12].map(short)).toEqual([
      '6\u00b710\u207b\u2074',
      '\u22120.044',
      '1230',
      '2\u00b710\u00b9\u00b2',
    ])
    expect(float32(Math.fround(1.5e-7))).toBe('1.50000005\u00b710\u207b\u2077')
    expect([1.25e-5, -0.0123456, Number.NaN].map(tabular)).toEqual([
      '1.25\u00b710\u207b\u2075',
      '\u22120.012346',
      'NaN',
    ])
    expect([0, 1e-4, -1e-4, 0.999].map(percent)).toEqual([
      '0\u00a0%',
      '<0.1\u00a0%',
      '>\u22120.1\u00a0%',
      '99.9\u00a0%',
    ])
    expect([0, 0.003, 0.5, 0.997, 1].map(cellPercent)).toEqual(['0', '<1', '50', '>99', '100'])
    expect([0, 0.001, 0.03, -0.09, -0.1, -0.5, 0.994, 0.996, -9.94, 12.3].map(cellNumber)).toEqual([
      '0',
      '\u22480',
      '.03',
      '\u2212.09',
      '\u2212.10',
      '\u2212.50',
      '.99',
      '1.0',
      '\u22129.9',
      '12',
    ])
  })

  it('thin out before they touch', () => {
    expect(labelStep(20)).toBe(1)
    expect(labelStep(7)).toBe(2)
    expect(labelStep(0.8) * 0.8).toBeGreaterThanOrEqual(11)
    expect(shorten('fishermen', 5)).toBe('fish\u2026')
  })
})

describe('progress', () => {
  it('says what happens, how long it will take, and how to stop it', () => {
    expect(progressSentence('forward', 'layer 4', null, 0.5, 4000)).toBe(
      'Running the model: layer 4, about 4 s left. Escape cancels.',
    )
    expect(progressSentence('queued', '', 2, 0, 100)).toBe('Waiting for the worker, 2 analyses ahead. Escape cancels.')
    expect(attemptsSentence(1)).toBe('')
    expect(attemptsSentence(2)).toContain('attempt 2')
  })
})
