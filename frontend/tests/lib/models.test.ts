/** How models are searched and described. */
import { expect, it, vi } from 'vitest'
import { fixedCatalogue, fixedSource } from '../../gallery/source'
import { hubId, searchModels, sizeLine } from '../../src/lib/data/models'
import { ModelLibrary } from '../../src/state/model-library.svelte'

const { models } = fixedCatalogue
const names = (text: string) => searchModels(models, text).map(({ name }) => name)

it('finds by name, kind, family and size; every word has to match', () => {
  expect(names('')).toHaveLength(models.length)
  expect(names('GPT')).toEqual(['gpt2'])
  expect(names('decoder bert 22.7 million')).toEqual(['gpt2'])
  expect(names('layers images')).toEqual(['vit'])
  expect(names('decoder vision')).toEqual([])
})

it('takes a hub id that no model has', () => {
  expect(hubId(models, ' org/name ')).toBe('org/name')
  expect(hubId(models, 'https://huggingface.co/org/name')).toBe('org/name')
  expect(hubId([{ ...models[0], hub: 'org/name' }], 'org/name')).toBe('')
  for (const text of ['', 'name', 'a/b/c', '../x', 'org/']) expect(hubId(models, text)).toBe('')
})

it('says what is rounded', () => {
  expect(sizeLine(models[0])).toBe('6 layers × 12 heads · 22.7\u00a0million parameters · 87\u00a0MiB')
  expect(sizeLine({ ...models[0], local: false })).toMatch(/about 22.7.million parameters · 87.MiB to download$/)
})

it('looks up again what a model supports if it could not be read', async () => {
  const source = fixedSource()
  const support = vi.fn(source.support).mockRejectedValueOnce(new Error('offline'))
  const library = new ModelLibrary({ ...source, support }, () => {})
  for (let time = 0; time < 3; time++) await library.learn(models[0])
  expect(library.support[models[0].name]?.length).toBeGreaterThan(0)
  expect(support).toHaveBeenCalledTimes(2)
})
