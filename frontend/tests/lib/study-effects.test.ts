import { expect, it } from 'vitest'
import { headNumber } from '../../src/lib/data/measures'
import { readFields } from '../../src/lib/data/params'
import { missingInStudies, offeredInStudies, studyMethod, studyNumbers } from '../../src/lib/data/study-effects'

const method = (name: string, properties: object, texts: object = {}) => ({
  ...headNumber({ name, title: name, doc: '', not: '', unit: 'logits', range: [null, null], signed: true }),
  params: { properties },
  texts,
})
const choice = (initial: string, ...options: string[]) => ({ type: 'string', enum: options, default: initial })
const ablation = method(
  'ablation',
  { how: choice('mean', 'mean', 'zero', 'reference') },
  { reference: { parameter: 'how', values: ['reference'] } },
)
const estimate = method(
  'attribution-patching',
  { of: choice('denoise', 'denoise', 'noise', 'mean', 'zero') },
  { against: { parameter: 'of', values: ['denoise', 'noise'] } },
)
const path = method(
  'path-patching',
  { receiver: { type: 'string' }, direction: choice('denoise', 'denoise', 'noise') },
  { against: { parameter: 'direction', values: ['denoise', 'noise'] } },
)

it('studies offer no reference texts, and no tokens that heads raise', () => {
  expect(readFields(offeredInStudies(ablation, false).params)[0].options).toEqual(['mean', 'zero'])
  const contribution = method('contribution', { writes: { type: 'integer', default: 0 } })
  expect(readFields(offeredInStudies(contribution, false).params)).toEqual([])
  expect(studyMethod(contribution, '', false)).toEqual({ name: 'contribution' })
})

it('an estimate is that of ablation unless every input has another text', () => {
  expect(studyMethod(estimate, '', false)).toEqual({ name: 'attribution-patching', of: 'mean' })
  expect(studyMethod(estimate, '', true)).toEqual({ name: 'attribution-patching' })
  expect(studyMethod(ablation, '{"how":"zero"}', false)).toEqual({ name: 'ablation', how: 'zero' })
})

it('says what is missing', () => {
  expect(missingInStudies(path, '', false)).toMatch(/needs another text for every input/)
  expect(missingInStudies(path, '', true)).toMatch(/receiver/)
  expect(studyMethod(path, '', true)).toBeUndefined()
  expect(missingInStudies(path, '{"receiver":"4.5"}', true)).toBe('')
  expect(studyMethod(path, '{"receiver":"4.5"}', true)).toEqual({ name: 'path-patching', receiver: '4.5' })
})

it('every method has two numbers per head', () => {
  const [effect, raises] = studyNumbers(ablation)
  expect([effect.name, effect.unit, effect.signed]).toEqual(['ablation.effect', 'logits', true])
  expect([raises.name, raises.unit, raises.range]).toEqual(['ablation.raises', '1', [0, 1]])
})
