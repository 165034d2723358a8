import { describe, expect, it } from 'vitest'
import {
  counterpartOf,
  methodOf,
  methodRequest,
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

it('a method is requested with what is chosen for it', () => {
  const chosen = { how: 'zero', direction: 'noise' }
  expect(methodRequest('ablation', chosen, 'Other')).toEqual({ method: { name: 'ablation', how: 'zero' } })
  expect(methodRequest('patching', chosen, '')).toBeUndefined()
  expect(methodRequest('patching', chosen, 'Other')).toEqual({
    method: { name: 'patching', direction: 'noise' },
    against: 'Other',
  })
  const estimate = 'attribution-patching'
  expect(methodRequest(estimate, chosen, '')).toEqual({ method: { name: estimate, of: 'zero' } })
  expect(methodRequest(estimate, chosen, 'Other')).toEqual({
    method: { name: estimate, of: 'noise' },
    against: 'Other',
  })
  expect([estimate, 'ablation', 'patching', 'contribution'].map((name) => counterpartOf(name, ''))).toEqual([
    'ablation',
    estimate,
    undefined,
    undefined,
  ])
  expect([estimate, 'ablation', 'patching'].map((name) => counterpartOf(name, 'Other'))).toEqual([
    'patching',
    undefined,
    estimate,
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
  expect(patchSentence('noise', 3, 6, -6)).toBe(
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
