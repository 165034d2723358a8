/** How a model attends: its own mechanism, and what departs from it. */
import { describe, expect, it } from 'vitest'
import { fixedCatalogue } from '../../gallery/source'
import type { Analysis, Model } from '../../src/lib/data/analysis'
import {
  findTwins,
  mechanismTitle,
  resolveMechanism,
  sameMethod,
  trainedMechanism,
  twinName,
  withTrainedDefaults,
} from '../../src/lib/data/mechanism'
import { readFields, writeParams } from '../../src/lib/data/params'
import { chosenBy, EXAMPLES, examplesWith } from '../../src/lib/text/examples'
import { Selection } from '../../src/state/selection.svelte'

const [minilm] = fixedCatalogue.models
const own = { name: 'jump', params: { rho: 3, order: 2, layers: null, how: 'together', signed: false } }
const twin = (name: string, over: Partial<Model> = {}): Model => ({ ...minilm, name, title: `Twin: ${name}`, ...over })
const models = [
  minilm,
  twin('soft', { siblings: ['hop', 'gone'] }),
  twin('hop', { siblings: ['soft', 'gone'], mechanism: own }),
  twin('gone', { siblings: ['soft', 'hop'], available: false }),
]
const jump = fixedCatalogue.mechanisms.find(({ name }) => name === 'jump')!

describe('what is at work', () => {
  it('is what the model was trained with, unless something is chosen', () => {
    expect(trainedMechanism(models, 'hop')).toBe(own)
    expect([trainedMechanism(models, 'minilm').name, trainedMechanism(models, 'org/other').name]).toEqual([
      'softmax',
      'softmax',
    ])
    expect(resolveMechanism(own, '', {})).toEqual(own)
    expect(resolveMechanism(own, 'jump', { rho: 4 })).toEqual({ name: 'jump', params: { ...own.params, rho: 4 } })
    expect(resolveMechanism(own, 'softmax', {})).toEqual({ name: 'softmax', params: {} })
  })

  it('is the same in whatever order its parameters stand', () => {
    expect(sameMethod({ name: 'a', params: { x: 1, y: [2] } }, { name: 'a', params: { y: [2], x: 1 } })).toBe(true)
    expect(sameMethod({ name: 'a', params: { x: 1 } }, { name: 'a', params: { x: 2 } })).toBe(false)
    expect(sameMethod({ name: 'a', params: {} }, { name: 'b', params: {} })).toBe(false)
  })

  it('has the parameters that the model was trained with as defaults', () => {
    const fields = readFields(withTrainedDefaults(jump, own).params)
    expect(fields.map(({ name, initial }) => [name, initial])).toEqual(Object.entries(own.params))
    expect(writeParams(fields, { rho: 3 })).toBe('')
    expect(writeParams(fields, { rho: 5 })).toBe('{"rho":5}')
    const hopfield = { name: 'hopfield', params: { rho: 1 } }
    expect(withTrainedDefaults(jump, hopfield)).toBe(jump)
    expect([mechanismTitle(jump, own), mechanismTitle(jump, hopfield)]).toEqual(['Jump, as trained', 'Jump'])
  })
})

describe('twins', () => {
  it('are siblings that can be had', () => {
    expect(findTwins(models, 'soft').map(twinName)).toEqual(['hop'])
    expect([findTwins(models, 'minilm'), findTwins(models, 'org/other')]).toEqual([[], []])
  })
})

describe('examples', () => {
  it('of twins are offered where both can be had', () => {
    const [softmax, hopfield] = ['twin-bert-softmax', 'twin-bert-hopfield'].map((name) => twin(name))
    const all = examplesWith([minilm, softmax, hopfield], [])
    expect(all.slice(0, EXAMPLES.length)).toEqual(EXAMPLES)
    expect(all.slice(EXAMPLES.length).map(({ title }) => title)).toEqual(['Two mechanisms'])
    expect(examplesWith([minilm, softmax], [])).toEqual(EXAMPLES)
    expect(examplesWith([softmax, { ...hopfield, available: false }], [])).toEqual(EXAMPLES)
  })

  it('of a reaction is offered with the model that reads it', () => {
    const all = examplesWith([minilm, twin('rxnmapper')], [])
    expect(all.slice(EXAMPLES.length).map(({ title }) => title)).toEqual(['A chemical reaction'])
    expect(chosenBy(all.at(-1)!)).toMatchObject({ model: 'rxnmapper', head: '10.5', lens: 'weights' })
  })

  it('of a language model are offered where it is installed', () => {
    const all = examplesWith([minilm, twin('smollm2')], []).slice(EXAMPLES.length)
    expect(all.map(({ head }) => head)).toEqual(['17.4', '16.0', '18.8'])
    expect(all.every((example) => chosenBy(example).model === 'smollm2')).toBe(true)
  })

  it('of images are offered with their model and image, and keep the text for the next model', () => {
    const all = examplesWith([twin('twin-vit-softmax')], [{ name: 'cat', url: 'cat.jpg', credit: '' }])
    expect(all.slice(EXAMPLES.length).map(({ title }) => title)).toEqual(['An image'])
    expect(examplesWith([twin('twin-vit-softmax')], [])).toEqual(EXAMPLES)
    expect(chosenBy(all.at(-1)!)).toMatchObject({ model: 'twin-vit-softmax', image: '', view: '' })
    expect(chosenBy(all.at(-1)!)).not.toHaveProperty('text')
  })
})

describe('the address', () => {
  const analysis = {
    text: 'One.',
    textPair: '',
    image: '',
    generate: null,
    generated: 0,
    maxTokens: null,
    mask: [],
    model: 'hop',
  }
  const said = (mechanism: string, params: Analysis['params']) => {
    const selection = new Selection('')
    const shown = { ...analysis, kind: 'self', mechanism, params, maps: {}, tokens: [], keyTokens: [] }
    selection.adopt(shown as unknown as Analysis, own)
    return [selection.mechanism, selection.params]
  }

  it('does not name the mechanism that the model was trained with', () => {
    expect(said('jump', own.params)).toEqual(['', ''])
    expect(said('softmax', {})).toEqual(['softmax', ''])
    expect(said('jump', { ...own.params, rho: 5 })[0]).toBe('jump')
  })
})
