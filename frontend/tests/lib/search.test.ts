import { describe, expect, it } from 'vitest'
import { fixedCatalogue, fixedSource } from '../../gallery/source'
import { connectSearch } from '../../src/app/search'
import { type Analysis, headTitle, parseHeads, type Request } from '../../src/lib/data/analysis'
import { headNumbers } from '../../src/lib/data/measures'
import {
  choicesOf,
  composeQuery,
  countSentence,
  isChip,
  isStillChosen,
  readSort,
  relaxQuery,
  type SearchPart,
  sortHeads,
  tokensOf,
  valueText,
} from '../../src/lib/data/search'
import { classCounts } from '../../src/lib/drawing/classes'
import { type Matrix, strongest } from '../../src/lib/maths/matrix'
import { MOST_SELECTED, mergeMaps, toggleHead } from '../../src/lib/maths/merge'
import { formatAmount } from '../../src/lib/text/words'
import { type GridLayout, headAt, placeOf } from '../../src/marks/grid-painter'
import type { OpenAnalysis } from '../../src/state/open-analysis'
import { Pointer } from '../../src/state/pointer.svelte'
import { HeadSearch } from '../../src/state/search.svelte'
import { Selection } from '../../src/state/selection.svelte'

const part = (slot: SearchPart['slot'], value: string): SearchPart => ({ slot, value, said: value })

describe('a query, put together from its parts', () => {
  it.each([
    [[part('where', 'vertical'), part('where', 'layer < 4')], 'vertical and layer < 4'],
    [[part('where', 'layer = 2 or layer = 3'), part('where', 'vertical')], '(layer = 2 or layer = 3) and vertical'],
    [[part('limit', '5'), part('order', 'order by entropy asc')], 'order by entropy asc limit 5'],
    [[part('lens', 'effective')], ''],
  ])('%#', (parts, query) => {
    expect(composeQuery(parts)).toBe(query)
  })

  it('is ordered by the measure that heads are sorted by', () => {
    const parts = [part('where', 'vertical'), part('order', 'order by entropy asc')]
    expect(composeQuery(parts, readSort('null_share'))).toBe('vertical order by null_share desc')
    expect(composeQuery([], readSort('rank.stable asc'))).toBe('order by rank.stable asc')
    expect(composeQuery(parts, readSort('rank'))).toBe('vertical order by entropy asc')
    expect(composeQuery(parts, readSort('effect asc'))).toBe('vertical order by entropy asc')
  })
})

it('says what a sentence asks for besides heads', () => {
  const parts = [part('lens', 'weights'), part('compare', 'effective'), part('head', '8.10'), part('key', '3 7')]
  expect(choicesOf(parts)).toEqual({
    lens: 'weights',
    compare: 'side',
    with: 'lens',
    other: 'effective',
    head: '8.10',
    heads: '',
  })
  expect(tokensOf(parts)).toEqual({ queries: [], keys: [3, 7] })
  expect(choicesOf([part('chart', 'entropy layer'), part('where', 'vertical')])).toEqual({
    colour: 'entropy',
    figures: 'entropy',
    spread: 'layer',
  })
})

it('chooses a second head, a difference and special tokens', () => {
  const parts = [part('head', '3.1'), part('pair', '4.5'), part('special', 'hide'), part('page', 'help')]
  expect(choicesOf(parts)).toEqual({
    head: '3.1',
    heads: '',
    compare: 'side',
    with: 'head',
    than: '4.5',
    special: 'hide',
  })
  expect(choicesOf([part('difference', 'effective')])).toEqual({
    compare: 'difference',
    with: 'lens',
    other: 'effective',
  })
  expect(choicesOf([part('head', 'best')])).toEqual({})
  expect(parts.map(isChip)).toEqual([true, true, true, false])
})

it('finds the strongest entry of a map, in some rows or in all', () => {
  const map: Matrix = { data: Float32Array.of(0.1, -0.9, Number.NaN, 0.3), rows: 2, cols: 2, exact: true }
  expect(strongest(map)).toEqual({ query: 0, key: 1 })
  expect(strongest(map, [1])).toEqual({ query: 1, key: 1 })
  expect(strongest({ ...map, data: new Float32Array(4) })).toBeUndefined()
})

it('detects parts whose fields have changed since', () => {
  const now = { lens: 'effective', colour: 'map', head: '2.9' }
  expect(isStillChosen(part('lens', 'effective'), now)).toBe(true)
  expect(isStillChosen(part('lens', 'weights'), now)).toBe(false)
  expect(isStillChosen(part('head', '2.9'), now)).toBe(true)
  expect(isStillChosen(part('chart', 'entropy layer'), now)).toBe(false)
  expect(isStillChosen(part('where', 'vertical'), now)).toBe(true)
})

it('offers the nearest heads where none reaches a bound', () => {
  const parts = [part('where', 'layer < 4'), part('where', 'head_roles.previous >= 0.5'), part('where', 'vertical')]
  expect(relaxQuery(parts)).toEqual({
    measure: 'head_roles.previous',
    query: 'layer < 4 and vertical order by head_roles.previous desc',
  })
  expect(relaxQuery([part('where', 'entropy@max-entropy < 1')])?.query).toBe('order by entropy@max-entropy asc')
  expect(relaxQuery([part('where', 'vertical'), part('where', 'layer > 2')])).toBeUndefined()
})

it('says how many were found, and what orders them', () => {
  const heads = [1, 2, 3].map((head) => ({ layer: 0, head, values: {} }))
  const found = { query: '', rankedBy: 'null_share', direction: 'desc' as const, of: 72, heads }
  expect(countSentence(found)).toBe('3 of 72 heads, largest null share first')
  expect(countSentence({ ...found, rankedBy: 'patterns.margin@effective' })).toBe('3 of 72 heads, clearest first')
  expect(countSentence({ ...found, rankedBy: null, of: 3 })).toBe('all 3 heads')
  expect(countSentence(found, [part('where', 'sink.is_sink = 1')])).toBe('3 of 72 heads are sinks')
  expect(countSentence({ ...found, heads: heads.slice(1, 2) }, [part('where', 'vertical')])).toBe(
    '1 of 72 heads is vertical',
  )
  expect(countSentence(found, [part('where', 'vertical'), part('where', 'layer = 0')])).toContain('first')
})

it('writes values with their unit, and says where there is none', () => {
  const share = { ...fixedCatalogue.measures[1], unit: '1' }
  expect(valueText('null_share@weights', 0.616, [share])).toBe('62\u00a0%')
  expect(valueText('null_share', 0.003, [share])).toBe('0.3\u00a0%')
  expect(valueText('null_share', -0.05, [share])).toBe('\u22125.0\u00a0%')
  expect(valueText('entropy', 1.234, [])).toBe('1.2')
  expect(valueText('entropy', null, [])).toBe('no reading')
  expect(valueText('vertical', 'diagonal', [])).toBe('diagonal')
})

it('offers every number per head, columns one by one, but no class', () => {
  const names = headNumbers(fixedCatalogue.measures).map(({ name }) => name)
  expect(names).toContain('entropy')
  expect(names).toContain('patterns.margin')
  expect(names).not.toContain('patterns')
  expect(names).not.toContain('patterns.class')
})

it('gives every column its own unit', () => {
  const distance = { ...fixedCatalogue.measures[0], axes: ['L', 'H', 'C'], unit: 'tokens', columns: ['mean', 'from_1'] }
  const [mean, share] = headNumbers([{ ...distance, units: { mean: 'tokens', from_1: '1' } }])
  expect([formatAmount(mean, 2.5), formatAmount(share, 0.25)]).toEqual(['2.5 tokens', '25\u00a0%'])
})

describe('several heads as one', () => {
  const map = (...data: number[]): Matrix => ({
    data: Float32Array.from(data),
    rows: 1,
    cols: data.length,
    exact: true,
  })
  it('are averaged, or their entry of largest magnitude is kept', () => {
    const maps = [map(0.2, -0.6, 0), map(0.4, 0.2, 0)]
    expect([...mergeMaps(maps, 'mean').data].map((value) => value.toFixed(2))).toEqual(['0.30', '-0.20', '0.00'])
    expect([...mergeMaps(maps, 'max').data].map((value) => value.toFixed(1))).toEqual(['0.4', '-0.6', '0.0'])
  })

  it('have no reading where one of them has none', () => {
    for (const how of ['mean', 'max'] as const) {
      expect([...mergeMaps([map(Number.NaN, 1), map(0.5, 1)], how).data]).toEqual([Number.NaN, 1])
      expect([...mergeMaps([map(0.5, 1), map(Number.NaN, 1)], how).data]).toEqual([Number.NaN, 1])
    }
  })

  it('must be of one shape, and leave their maps alone', () => {
    const first = map(1, 2)
    mergeMaps([first, map(3, 4)], 'mean')
    expect([...first.data]).toEqual([1, 2])
    expect(() => mergeMaps([first, map(1)], 'mean')).toThrow('shape')
  })

  it('come and go, and are never too many', () => {
    const [a, b] = parseHeads('1.2 3.4')
    expect(toggleHead([a], b)).toEqual([a, b])
    expect(toggleHead([a, b], a)).toEqual([b])
    const many = Array.from({ length: MOST_SELECTED }, (_, head) => ({ layer: 0, head }))
    expect(toggleHead(many, b)).toHaveLength(MOST_SELECTED)
    expect(headTitle({ ...a, among: { heads: [a, b], how: 'max' } })).toBe('maximum of 2 heads')
  })
})

describe('places in the grid', () => {
  const layout: GridLayout = { layers: 2, heads: 3, cell: 10, gap: 2 }
  it('are layers and heads, or an order of its own', () => {
    expect(headAt(layout, 1, 2)).toEqual({ layer: 1, head: 2 })
    const order = parseHeads('5.1 0.0 3.3 2.2')
    expect(headAt({ ...layout, order }, 1, 0)).toEqual({ layer: 2, head: 2 })
    expect(headAt({ ...layout, order }, 1, 1)).toBeUndefined()
    expect(placeOf({ ...layout, order }, { layer: 3, head: 3 })).toEqual([0, 2])
    expect(placeOf({ ...layout, order }, { layer: 4, head: 4 })).toBeUndefined()
  })
})

it('counts the classes that occur', () => {
  expect(
    classCounts([
      ['diagonal', null],
      ['vertical', 'diagonal'],
    ]),
  ).toEqual([
    ['vertical', 1],
    ['diagonal', 2],
  ])
})

describe('Finder', () => {
  const source = fixedSource()
  const request: Request = {
    model: 'minilm',
    text: 'One two three four.',
    textPair: '',
    kind: 'self',
    mechanism: { name: 'softmax', params: {} },
    lenses: [{ name: 'weights', params: {} }],
    measures: ['entropy'],
  }
  const analysed = (): Promise<Analysis> => source.submit(request, new AbortController().signal)
  const search = (text: string, sort = 'layer') => ({ text, sort, lens: 'weights' })

  it('finds heads, highlights them, and resets', async () => {
    const [heads, analysis] = [new HeadSearch(source.headQueries), await analysed()]
    expect(await heads.follow(analysis, search('diagonal and layer < 2'))).toBe(false)
    expect(heads.found?.heads.every(({ layer }) => layer < 2)).toBe(true)
    expect(heads.lit?.size).toBe(heads.found?.heads.length)
    expect(heads.lit?.size).toBeGreaterThan(0)
    await heads.follow(analysis, search(''))
    expect([heads.found, heads.lit, heads.view]).toEqual([undefined, undefined, undefined])
  })

  it('asks for a measure that is missing', async () => {
    const heads = new HeadSearch(source.headQueries)
    expect(await heads.follow(await analysed(), search('', 'null_share'))).toBe(true)
    expect(heads.needs).toEqual(['null_share'])
    heads.refuse('Not here.')
    expect([heads.error, heads.busy]).toEqual(['Not here.', false])
  })

  it('says so if a measure that is missing cannot be computed', async () => {
    const [search, analysis] = [new HeadSearch(source.headQueries), await analysed()]
    const shown = () => ({ analysis }) as OpenAnalysis
    let running = true
    const reasons = () => ({})
    const asked = { search, shown, reasons, selection: new Selection(), busy: () => running }
    const rest = {
      lens: () => 'weights',
      command: () => {},
      complete: () => {},
      pointer: new Pointer(asked.selection, () => [9, 9]),
    }
    const box = connectSearch({ ...asked, ...rest, analyse: async () => {} })
    await box.seek(analysis, { text: '', sort: 'null_share', lens: 'weights' })
    expect([search.busy, search.error]).toEqual([true, ''])
    running = false
    await box.seek(analysis, { text: '', sort: 'null_share', lens: 'weights' })
    expect([search.busy, search.error]).toEqual([false, expect.stringContaining('needs null_share, which could not')])
  })

  it('sorts without lighting anything', async () => {
    const heads = new HeadSearch(source.headQueries)
    await heads.follow(await analysed(), search('', 'entropy'))
    expect(heads.found?.heads).toHaveLength(72)
    expect(heads.lit).toBeUndefined()
  })

  it('asks back, and says what can\u2019t be read', async () => {
    const [heads, analysis] = [new HeadSearch(source.headQueries), await analysed()]
    await heads.follow(analysis, search('heads in layer 1'))
    expect(heads.question?.choices).toHaveLength(2)
    await heads.follow(analysis, search('what?'))
    expect([heads.question, heads.error]).toEqual([undefined, 'This can\u2019t be read. (At character 5.)'])
  })

  it('shows only what was asked for last', async () => {
    const [heads, analysis] = [new HeadSearch(source.headQueries), await analysed()]
    const first = heads.follow(analysis, search('vertical'))
    await heads.follow(analysis, search('diagonal'))
    await first
    expect(heads.view?.query).toBe('diagonal')
  })
})

it('heads are sorted by numbers, and those without one come last', () => {
  const [values, heads] = [[[1, null, -3, 1]], [0, 1, 2, 3].map((head) => ({ layer: 0, head }))]
  expect(sortHeads(heads, values, 'desc').map(({ head }) => head)).toEqual([0, 3, 2, 1])
  expect(sortHeads(heads, values, 'asc').map(({ head }) => head)).toEqual([2, 0, 3, 1])
})
