import { expect, it } from 'vitest'
import { headNumber } from '../../src/lib/data/measures'
import { readFields } from '../../src/lib/data/params'
import {
  missingInStudies,
  needsReference,
  offeredInStudies,
  studyMethod,
  studyNumbers,
} from '../../src/lib/data/study-effects'

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

const alone = { paired: false, reference: [] }
const paired = { paired: true, reference: [] }

it('studies offer all replacements, and no tokens that heads raise', () => {
  expect(readFields(offeredInStudies(ablation, alone).params)[0].options).toEqual(['mean', 'zero', 'reference'])
  const contribution = method('contribution', { writes: { type: 'integer', default: 0 } })
  expect(readFields(offeredInStudies(contribution, alone).params)).toEqual([])
  expect(studyMethod(contribution, '', alone)).toEqual({ name: 'contribution' })
})

it('takes the mean over reference texts once some are typed', () => {
  const how = '{"how":"reference"}'
  expect([needsReference(ablation, '', alone), needsReference(ablation, how, alone)]).toEqual([false, true])
  expect(missingInStudies(ablation, how, alone)).toBe('Type at least one reference text.')
  expect(studyMethod(ablation, how, alone)).toBeUndefined()
  expect(studyMethod(ablation, how, { ...alone, reference: ['The cat'] })).toEqual({
    name: 'ablation',
    how: 'reference',
  })
})

it('an estimate is that of ablation unless every input has another text', () => {
  expect(studyMethod(estimate, '', alone)).toEqual({ name: 'attribution-patching', of: 'mean' })
  expect(studyMethod(estimate, '', paired)).toEqual({ name: 'attribution-patching' })
  expect(studyMethod(ablation, '{"how":"zero"}', alone)).toEqual({ name: 'ablation', how: 'zero' })
})

it('says what is missing', () => {
  expect(missingInStudies(path, '', alone)).toMatch(/needs another text for every input/)
  expect(missingInStudies(path, '', paired)).toMatch(/receiver/)
  expect(studyMethod(path, '', paired)).toBeUndefined()
  expect(missingInStudies(path, '{"receiver":"4.5"}', paired)).toBe('')
  expect(studyMethod(path, '{"receiver":"4.5"}', paired)).toEqual({ name: 'path-patching', receiver: '4.5' })
})

it('every method has two numbers per head', () => {
  const [effect, raises] = studyNumbers(ablation)
  expect([effect.name, effect.unit, effect.signed]).toEqual(['ablation.effect', 'logits', true])
  expect([raises.name, raises.unit, raises.range]).toEqual(['ablation.raises', '1', [0, 1]])
})
