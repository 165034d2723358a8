/** How numbers per head are named, found and left out. */
import { expect, it } from 'vitest'
import { fixedCatalogue } from '../../gallery/source'
import type { Token } from '../../src/lib/data/analysis'
import { headNumbers, inGroups, menuTitle, searchMeasures, whyEmpty } from '../../src/lib/data/measures'

const columns = { axes: ['L', 'H', 'C'], unit: '1' }
const [plain] = fixedCatalogue.measures
const types = {
  ...plain,
  ...columns,
  name: 'token_types',
  title: 'Attention by token type',
  columns: ['punct', 'PUNCT', 'subword'],
}
const distance = {
  ...plain,
  ...columns,
  name: 'qk_distance',
  title: 'Distance',
  unit: 'tokens',
  columns: ['mean', 'from_1', 'from_2', 'from_4'],
  units: { from_1: '1', from_2: '1', from_4: '1' },
}
const numbers = headNumbers([types, distance])
const titles = numbers.map(({ title }) => title)

it('never confuses the kind punct with the part of speech PUNCT', () => {
  expect(titles.slice(0, 2)).toEqual([
    'Attention by token type: punctuation',
    'Attention by token type: part of speech: PUNCT',
  ])
  expect(menuTitle(numbers[1])).toBe('part of speech: PUNCT · Attention by token type')
})

it('names bins of distances, which are shares', () => {
  expect(titles.slice(4)).toEqual([
    'Distance: 1 token away',
    'Distance: 2 to 3 tokens away',
    'Distance: 4 or more tokens away',
  ])
  expect(numbers.slice(3).map(({ unit, range }) => [unit, range[1]])).toEqual([
    ['tokens', plain.range[1]],
    ['1', 1],
    ['1', 1],
    ['1', 1],
  ])
})

it('finds by every word, and puts single numbers first', () => {
  expect(searchMeasures(numbers, 'speech punct').map(({ name }) => name)).toEqual(['token_types.PUNCT'])
  expect(inGroups([...numbers, plain])[0]).toBe(plain)
})

it('says why a number has no reading', () => {
  const token: Token = { text: 'a', id: 1, start: 0, end: 1, word: 0, segment: 0, kind: 'word' }
  const why = (name: string, tokens = [token, token]) => whyEmpty(name, tokens, { rank: 'no values' })
  expect(why('rank.stable')).toBe('no values')
  expect(why('token_types.PUNCT')).toMatch(/part of speech/)
  expect(why('token_types.PUNCT', [{ ...token, pos: 'PUNCT' }])).toBeNull()
  expect(why('token_types.subword')).toMatch(/no token of this type/)
  expect(why('token_types.word')).toBeNull()
  expect(why('qk_distance.from_2')).toMatch(/that far apart/)
  expect(why('qk_distance.from_1')).toBeNull()
  expect(why('entropy')).toBeNull()
})

it('names columns by offset in words', () => {
  const offsets = {
    ...plain,
    ...columns,
    name: 'qk_offset',
    title: 'Products',
    columns: ['size_64', 'cosine_1', 'effective_0'],
  }
  const named = headNumbers([{ ...offsets, range: [-1, null], units: { effective_0: 'dimensions' } }])
  expect(named.map(({ title }) => title)).toEqual([
    'Products: relative size at offset 64',
    'Products: cosine of offsets 0 and 1',
    'Products: effective rank at offset 0',
  ])
  expect(named[1].range).toEqual([-1, 1])
})
