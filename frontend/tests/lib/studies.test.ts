import { afterEach, describe, expect, it, vi } from 'vitest'
import { fixedStudies } from '../../gallery/studies'
import { requestBody } from '../../src/api/studies'
import {
  type Studies,
  type StudyItem,
  type StudyNumber,
  type StudyRequest,
  studyProgressSentence,
  studyTitle,
  type Variant,
  variantNames,
} from '../../src/lib/data/studies'
import {
  analysisLink,
  binSentence,
  difference,
  medianSentence,
  numbered,
  rankCells,
  rankQuery,
  toGrid,
} from '../../src/lib/data/study-heads'
import { short, timeLeft } from '../../src/lib/text/format'
import { headAt, headings, placeOf } from '../../src/marks/grid-painter'
import { OpenStudy } from '../../src/state/study/study.svelte'
import { StudyList } from '../../src/state/study/study-list.svelte'

const titled = (model: string) => model.toUpperCase()
const variant = (model: string, name = 'softmax', params = {}): Variant => ({
  model,
  mechanism: { name, params },
  layers: [0, 1],
  heads: [0, 1],
})

describe('names of studies', () => {
  it('tells variants apart by their models, or by what else differs', () => {
    expect(variantNames([variant('a'), variant('b')], titled)).toEqual(['A', 'B'])
    expect(variantNames([variant('a'), variant('a', 'jump', { order: 2 })], titled)).toEqual([
      'softmax',
      'jump (order 2)',
    ])
    expect(variantNames([variant('a', 'jump')], titled)).toEqual(['A, jump'])
    expect(studyTitle('folder/dev.tsv', [variant('a'), variant('a', 'jump')], titled)).toBe(
      'dev.tsv · A, softmax and jump',
    )
  })

  it('says how far one is', () => {
    const progress = { fraction: 0.5, stage: 'forward', detail: '', position: null, inputs: 1300, of: 2600 }
    expect(studyProgressSentence({ ...progress, secondsLeft: 89 })).toBe('1,300 of 2,600 inputs, about 89 s left.')
    expect(studyProgressSentence({ ...progress, secondsLeft: null })).toBe('1,300 of 2,600 inputs.')
    const queued = { ...progress, inputs: 0, stage: 'queued', secondsLeft: null }
    expect(studyProgressSentence({ ...queued, position: 12 })).toBe('Waiting: 12 ahead.')
    expect([timeLeft(600), timeLeft(9000)]).toEqual(['10 min', '2.5 h'])
  })
})

describe('a study request', () => {
  const asked: StudyRequest = {
    dataset: 'dir/a.tsv',
    reading: { format: '', columns: {} },
    model: 'minilm',
    mechanism: { name: 'softmax', params: {} },
    against: null,
    lenses: [],
    measures: [],
    effects: [],
    target: [],
    position: null,
    reference: [],
    figures: ['entropy'],
    limit: null,
    seed: 7,
    maxTokens: null,
    badRows: 'skip',
  }

  it('leaves out what was not chosen', () => {
    expect(requestBody(asked)).toEqual({
      dataset: 'dir/a.tsv',
      model: 'minilm',
      mechanism: { name: 'softmax' },
      lenses: [],
      measures: [],
      figures: ['entropy'],
      bad_rows: 'skip',
    })
  })

  it('names columns, the second variant, and the subset with its seed', () => {
    const against = { model: 'minilm', mechanism: { name: 'jump', params: { order: 2 } } }
    const reading = { format: '', columns: { text: 'sentence' } }
    expect(requestBody({ ...asked, against, reading, limit: 10, maxTokens: 64 })).toMatchObject({
      against: { model: 'minilm', mechanism: { name: 'jump', order: 2 } },
      columns: { text: 'sentence' },
      limit: 10,
      seed: 7,
      max_tokens: 64,
    })
  })

  it('names effects, and what they are about', () => {
    const effects = [{ name: 'ablation', how: 'zero' }]
    expect(
      requestBody({ ...asked, effects, target: [' Mary', ' John'], position: -2, reference: ['The cat'] }),
    ).toMatchObject({
      effects,
      reference: ['The cat'],
      target: [' Mary', ' John'],
      position: -2,
    })
  })
})

describe('heads of a study', () => {
  it('are ranked by a measure, unless the query says by what', () => {
    expect(rankQuery('layer < 4', 'entropy', 'asc')).toBe('layer < 4 order by entropy asc')
    expect(rankQuery('', 'entropy', 'desc')).toBe('order by entropy desc')
    expect(rankQuery('order by rank desc', 'entropy', 'asc')).toBe('order by rank desc')
  })

  it('stand in a grid, with gaps where there is no reading, and differ head by head', () => {
    const heads = [
      { layer: 0, head: 1, values: { entropy: 2 } },
      { layer: 1, head: 0, values: { entropy: null } },
    ]
    const found = { query: '', rankedBy: 'entropy', direction: 'desc' as const, of: 4, heads }
    const grid = toGrid(found, 'entropy', variant('a'))
    expect(grid).toEqual([
      [null, 2],
      [null, null],
    ])
    const more = difference(grid, [
      [1, 0.5],
      [0, 0],
    ])
    expect(rankCells(more, variant('a'))).toEqual([{ layer: 0, head: 1, value: -1.5 }])
  })

  it('have their own numbers in the grid, also where not every layer attends', () => {
    const values = [
      [1, 2],
      [3, 4],
    ]
    const some = numbered(values, { ...variant('a'), layers: [3, 7] })
    const layout = { ...some.cells, cell: 16, gap: 2 }
    expect(headings(layout)).toEqual({ layers: [3, 7], heads: [0, 1] })
    const head = headAt(layout, 1, 0)
    expect([head, placeOf(layout, { layer: 7, head: 0 })]).toEqual([{ layer: 7, head: 0 }, [1, 0]])
    expect(some.values[7][0]).toBe(3)
    expect(numbered(values, variant('a'))).toEqual({ cells: { layers: 2, heads: 2 }, values })
  })

  it('open on a text as it was in the study', () => {
    const row = { row: 3, text: 'A & b', textPair: '', label: '' }
    const link = analysisLink(
      row,
      variant('minilm', 'jump', { order: 2 }),
      { request: { max_tokens: 64 } },
      'effective',
      { layer: 4, head: 5 },
    )
    expect(link).toBe(
      './#text=A+%26+b&model=minilm&mechanism=jump&params=%7B%22order%22%3A2%7D&most=64&lens=effective&head=4.5',
    )
  })

  it('of the gallery are as those of a server', async () => {
    const { heads } = await fixedStudies('some').heads('one', 'layer < 1 order by entropy asc', 'weights', 0)
    const values = heads.map(({ values }) => Number(values.entropy))
    expect(values).toEqual([...values].sort((a, b) => a - b))
  })
})

describe('the list of studies', () => {
  afterEach(() => vi.useRealTimers())

  const made = (number: number): StudyItem => ({
    id: `s${number}`,
    status: 'done',
    progress: { fraction: 1, stage: 'done', detail: '', position: null, inputs: 1, of: 1, secondsLeft: null },
    error: null,
    dataset: `d${number}.tsv`,
    variants: [],
    when: number,
  })

  /** So many studies, the newest with the largest number, answered page by page as the server does. */
  function listed(all: StudyItem[]): Studies {
    const list = vi.fn(async (limit: number, from?: string) => {
      const rest = all.filter(({ when }) => from === undefined || when < Number(from))
      const items = rest.slice(0, limit)
      return { items, next: items.length === limit ? String(items.at(-1)?.when) : null }
    })
    return { ...fixedStudies('none'), list }
  }
  const stored = (count: number) => Array.from({ length: count }, (_, i) => made(count - i))
  const refuse = (error: unknown) => {
    throw error
  }

  it('begins with the newest, and goes on to the oldest', async () => {
    const it = new StudyList(listed(stored(130)), refuse)
    await it.load()
    expect([it.items?.length, it.next]).toEqual([50, '81'])
    await it.more()
    expect(it.items?.length).toBe(100)
    await it.more(true)
    expect([it.items?.length, it.next]).toEqual([130, null])
    expect(new Set(it.items?.map(({ id }) => id)).size).toBe(130)
  })

  it('keeps loaded pages when a study is added, and drops deleted ones', async () => {
    const all = stored(120)
    const it = new StudyList(listed(all), refuse)
    await it.load()
    await it.more()
    all.unshift(made(121))
    await it.load()
    expect(it.items?.map(({ when }) => when)).toEqual(Array.from({ length: 101 }, (_, i) => 121 - i))
    it.drop('s100')
    expect(it.items?.length).toBe(100)
    await it.more()
    expect(it.items?.at(-1)?.when).toBe(1)
    expect(it.next).toBeNull()
  })

  it('keeps the oldest ones where there are more than one answer holds', async () => {
    const all = stored(260)
    const it = new StudyList(listed(all), refuse)
    await it.load()
    await it.more(true)
    all.unshift(made(261))
    await it.load()
    expect(it.items?.map(({ when }) => when)).toEqual(Array.from({ length: 261 }, (_, i) => 261 - i))
    expect(it.next).toBeNull()
  })

  it('is looked up again only while something runs', async () => {
    vi.useFakeTimers()
    const all = [{ ...made(2), status: 'running' as const }, made(1)]
    const studies = listed(all)
    const it = new StudyList(studies, refuse)
    await it.load()
    all[0] = made(2)
    await vi.runAllTimersAsync()
    expect(studies.list).toHaveBeenCalledTimes(2)
    expect(it.items?.[0].status).toBe('done')
  })
})

it('tells a median no more finely than it is known', () => {
  const number = { count: 5000, low: 0 } as StudyNumber
  const told = (...medianWithin: [number, number]) => medianSentence({ ...number, medianWithin }, short)
  expect(told(1.2001, 1.2002)).toBe('Half of all 5,000 values are below 1.2.')
  expect(told(0, 0.025)).toBe('The median of all 5,000 values is at most 0.025.')
  expect(told(0.25, 0.5)).toBe('The median of all 5,000 values is between 0.25 and 0.5.')
  expect(medianSentence({ ...number, medianWithin: null }, short)).toBe('')
  const spread = (...counts: number[]) =>
    binSentence({ ...number, count: 136, distribution: { edges: [0, 0.025, 0.05, 0.075], counts } }, short)
  expect([spread(136, 0, 0), spread(0, 136, 0), spread(1, 135, 0)]).toEqual([
    'All 136 values are in one bin, below 0.025.',
    'All 136 values are in one bin, from 0.025 to 0.05.',
    '',
  ])
})

it('cancels a study, and keeps one that has just ended', async () => {
  const removed: string[] = []
  const source = fixedStudies('some')
  const remove = async (id: string) => void removed.push(id)
  const changed = vi.fn()
  for (const status of ['running', 'done'] as const) {
    const open = new OpenStudy({ ...source, remove }, changed, String)
    void open.open('running')
    await vi.waitFor(() => expect(open.study?.status).toBe('running'))
    open.studies.study = async (id, signal) => ({ ...(await source.study(id, signal)), status })
    await open.cancel()
    expect([removed, open.error]).toEqual([['running'], ''])
    await open.open('')
  }
  expect(changed).toHaveBeenCalledTimes(2)
})
