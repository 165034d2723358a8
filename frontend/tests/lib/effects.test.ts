import { describe, expect, it } from 'vitest'
import type { Declaration } from '../../src/lib/data/analysis'
import {
  alignPlaces,
  counterpartOf,
  methodOf,
  methodRequest,
  methodValues,
  missing,
  type OtherTexts,
  parseTarget,
  rankOf,
  readOutput,
  toggleTarget,
  writeTarget,
} from '../../src/lib/data/effects'
import {
  beforeSentence,
  changeOfFirst,
  fallSentence,
  patchSentence,
  quoted,
  rankSentence,
  targetTexts,
  writesSentence,
} from '../../src/lib/text/effects'

const one = (id: number, text: string, probability: number) => ({ id, text, probability })
const known = [one(3, ' Mary', 0.9), one(5, ' John', 0.002), one(7, 'Mary', 0.001)]

describe('a target', () => {
  it('is chosen click by click, and two at most', () => {
    const steps = [3, 5, 7, 3, 7]
    const targets = steps.map((_, at) =>
      steps.slice(0, at + 1).reduce<ReturnType<typeof toggleTarget>>(toggleTarget, []),
    )
    expect(targets).toEqual([[3], [3, 5], [3, 7], [7], []])
  })

  it('survives the address, which may hold anything', () => {
    for (const target of [[], [3], [' Mary', 5]]) expect(parseTarget(writeTarget(target))).toEqual(target)
    for (const text of ['[', '3', '[1,2,3]', '[-1]', '[1.5]', '[""]', '[null]', '{}'])
      expect(parseTarget(text)).toEqual([])
  })

  it('is typed: a prediction that reads like it, or the text as it is', () => {
    expect(['Mary', ' Mary', '" Mary"', 'Ann', '', ' ', '""'].map((typed) => readOutput(typed, known))).toEqual([
      7,
      3,
      ' Mary',
      'Ann',
      undefined,
      undefined,
      undefined,
    ])
    expect(readOutput('John', known)).toBe(5)
    expect(targetTexts([5, ' Ann', 9], known)).toEqual([' John', ' Ann', '#9'])
  })
})

it('colours of the grid name their method', () => {
  expect(['effect.ablation', 'entropy', 'map'].map(methodOf)).toEqual(['ablation', undefined, undefined])
})

/** A method with a parameter of these values, some of which need texts. */
const method = (name: string, field: object, texts: Declaration['texts'] = {}) =>
  ({ name, title: name, texts, params: { properties: field } }) as Declaration
const HOW = {
  how: { type: 'string', enum: ['mean', 'zero', 'reference'], default: 'mean' },
  heads: { type: 'array', default: [] },
}
const ablation = method('ablation', HOW, { reference: { parameter: 'how', values: ['reference'] } })
const directions = { type: 'string', enum: ['denoise', 'noise'], default: 'denoise' }
const receiver = { type: 'string', pattern: '^\\d+\\.\\d+$' }
const needy = (parameter: string) => ({ against: { parameter, values: ['denoise', 'noise'] } })
const path = method('path-patching', { receiver, direction: directions }, needy('direction'))
const patching = method('patching', { direction: directions }, needy('direction'))
const estimate = method(
  'attribution-patching',
  { of: { ...directions, enum: ['denoise', 'noise', 'mean', 'zero'] } },
  needy('of'),
)
const NONE: OtherTexts = { against: '', reference: [] }
const OTHER: OtherTexts = { against: 'Other', reference: ['A.', 'B.'] }

describe('a method', () => {
  it('is requested with what was chosen for it, and the texts that it needs', () => {
    const ask = (one: Declaration, chosen: string, others = OTHER) =>
      methodRequest(one, methodValues(one, chosen, others), others)
    expect(ask(ablation, '')).toEqual({ method: { name: 'ablation' } })
    expect(ask(ablation, '{"how":"zero"}')).toEqual({ method: { name: 'ablation', how: 'zero' } })
    const reference = { method: { name: 'ablation', how: 'reference' }, reference: ['A.', 'B.'] }
    expect(ask(ablation, '{"how":"reference"}')).toEqual(reference)
    expect(ask(ablation, '{"how":"reference"}', NONE)).toBeUndefined()
    expect([ask(patching, '', NONE), ask(path, '')]).toEqual([undefined, undefined])
    expect(ask(path, '{"receiver":"5.7","direction":"noise"}')).toEqual({
      method: { name: 'path-patching', receiver: '5.7', direction: 'noise' },
      against: 'Other',
    })
    expect(ask(estimate, '')).toEqual({ method: { name: 'attribution-patching' }, against: 'Other' })
    expect(ask(estimate, '', NONE)).toEqual({ method: { name: 'attribution-patching', of: 'mean' } })
  })

  it('says what is missing', () => {
    const said = (one: Declaration, chosen: string, others: OtherTexts) =>
      missing(one, methodValues(one, chosen, others), others)
    expect(said(patching, '', NONE)).toBe('patching needs another text to compare with.')
    expect(said(ablation, '{"how":"reference"}', NONE)).toBe('Type at least one reference text.')
    expect(said(path, '', OTHER)).toBe('Choose the receiver: a head, such as 4.5.')
    expect(said(path, '{"receiver":"5.7"}', OTHER)).toBe('')
  })

  it('has an estimate, or is one', () => {
    expect(counterpartOf(ablation, { how: 'zero' })).toEqual({ name: 'attribution-patching', values: { of: 'zero' } })
    expect(counterpartOf(estimate, { of: 'noise' })).toEqual({ name: 'patching', values: { direction: 'noise' } })
    expect(counterpartOf(estimate, { of: 'mean' })).toEqual({ name: 'ablation', values: { how: 'mean' } })
    expect(counterpartOf(path, { direction: 'noise' })).toBeUndefined()
  })
})

it('two texts are aligned around what differs', () => {
  const [own, other] = ['a b c d e f', 'a b X d e f'].map((text) => text.split(' '))
  expect(alignPlaces(own, other, 1)).toEqual([
    { skipped: 1 },
    { place: 1, texts: ['b', 'b'], differ: false },
    { place: 2, texts: ['c', 'X'], differ: true },
    { place: 3, texts: ['d', 'd'], differ: false },
    { skipped: 2 },
  ])
})

it('heads are ranked by size, whatever the sign', () => {
  const values = [
    [0.5, -2],
    [null, 1],
  ]
  expect(rankOf(values, { layer: 0, head: 1 })).toEqual({ rank: 1, count: 3 })
  expect(rankSentence(rankOf(values, { layer: 0, head: 0 }))).toBe(', number 3 of 3 heads')
  expect(rankOf(values, { layer: 1, head: 0 })).toBeUndefined()
  expect(rankOf(values, { layer: 4, head: 0 })).toBeUndefined()
})

it('changes have a sentence', () => {
  expect(changeOfFirst(known, [known[1], known[0]])).toBe('\u201c John\u201d instead of \u201c Mary\u201d.')
  expect(changeOfFirst(known, [{ ...known[0], probability: 0.5 }])).toBe(
    '\u201c Mary\u201d stays first: 90\u00a0% before, 50\u00a0% now.',
  )
  expect(beforeSentence(known[1], known)).toBe('was 0.2\u00a0%')
  expect(beforeSentence(one(9, ' x', 0.3), known)).toBe('was below 0.1\u00a0%')
  expect([1.25, -1.25, 0].map((effect) => fallSentence('It', effect))).toEqual([
    'It falls by 1.3 logits',
    'It rises by 1.3 logits',
    'It stays as it is',
  ])
  expect(patchSentence('Patching', 'noise', 3, 6, -6)).toBe(
    'Patching destroys 3 of the 12 logits between the two texts (25\u00a0%).',
  )
  expect(['\n', ' a', ' '].map(quoted)).toEqual(['\u201c\u21b5\u201d', '\u201c a\u201d', '\u201c\u2423\u201d'])
})

it('what a head raises and lowers most', () => {
  const logits = [' a', ' b', ' c'].map((text, at) => ({ text, logit: 1.25 - at }))
  expect(writesSentence(logits)).toBe(
    'Raises most \u201c a\u201d (+1.3), \u201c b\u201d (+0.25); lowers most \u201c c\u201d (\u22120.75).',
  )
  expect(writesSentence(logits.slice(2))).toBe('Lowers most \u201c c\u201d (\u22120.75).')
  expect(writesSentence([])).toBe('')
})
