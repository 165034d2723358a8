/** How models are searched and described. */
import { expect, it } from 'vitest'
import { fixedCatalogue } from '../../gallery/source'
import { hubId, searchModels, sizeLine } from '../../src/lib/data/models'

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
