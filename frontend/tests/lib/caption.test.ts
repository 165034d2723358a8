import { describe, expect, it } from 'vitest'
import { fixedSource, fixedText } from '../../gallery/source'
import type { Analysis, Request } from '../../src/lib/data/analysis'
import { groupMap } from '../../src/lib/maths/axis'
import { difference } from '../../src/lib/maths/matrix'
import { mergeMaps } from '../../src/lib/maths/merge'
import { caption, cutSentence, precisionOf, warningsOf } from '../../src/lib/text/caption'

const lenses = ['weights', 'effective'].map((name) => ({ name, params: {} }))
const request: Request = {
  model: 'minilm',
  text: fixedText(12),
  textPair: '',
  kind: '',
  mechanism: { name: 'jump', params: { order: 2 } },
  lenses,
  measures: [],
} as Request

async function analysed(text = request.text): Promise<Analysis> {
  return fixedSource().submit({ ...request, text }, new AbortController().signal)
}

describe('a caption', () => {
  it('says whose attention it is, read how, of what', async () => {
    const analysis = await analysed()
    const said = caption({
      analysis,
      name: 'head 4.5',
      model: 'MiniLM',
      lenses: [{ name: 'weights', title: 'Weights' }],
    })
    expect(said).toContain('Head 4.5 of MiniLM, mechanism jump (order 2); lens: weights.')
    expect(said).toContain(`12 tokens: \u201c${request.text}\u201d.`)
  })

  it('says that a map is folded', async () => {
    const told = { analysis: await analysed(), name: 'head 4.5', model: 'MiniLM', lenses: [] }
    expect(caption({ ...told, unit: 'sentences' })).toContain('Folded to sentences, keys summed, queries averaged.')
    expect(caption({ ...told, unit: 'words' })).toContain('Folded to words, ')
    expect(caption(told)).not.toContain('Folded')
  })

  it('names the heads that were merged, and what they are compared with', async () => {
    const told = { analysis: await analysed(), name: 'mean of 2 heads', model: 'MiniLM', lenses: [] }
    const heads = [
      { layer: 1, head: 1 },
      { layer: 2, head: 10 },
    ]
    const head = { layer: 1, head: 1, among: { heads, how: 'mean' as const } }
    const other = { ...(await analysed('Another text.')), id: 'ffff0000aaaa' }
    const second = { analysis: other, head: { layer: 0, head: 3 }, model: 'MiniLM' }
    const said = caption({ ...told, head, second })
    expect(said).toContain('Mean of heads 1.1, 2.10.')
    expect(said).toContain(
      'Compared with MiniLM, mechanism jump (order 2), on \u201cAnother text.\u201d (analysis ffff0000).',
    )
    expect(caption({ ...told, second: { ...second, analysis: told.analysis } })).not.toContain('Compared')
  })

  it('shortens a long text', async () => {
    const analysis = await analysed(fixedText(512))
    const said = caption({ analysis, name: 'all heads', model: 'MiniLM', lenses: [] })
    expect(said.length).toBeLessThan(500)
    expect(said).toContain('\u2026\u201d')
  })

  it('repeats the warnings of its lenses, and no others', async () => {
    const analysis = await analysed()
    expect(warningsOf(analysis, ['effective'])).toHaveLength(1)
    expect(warningsOf(analysis, ['weights'])).toEqual([])
  })
})

describe('what was cut', () => {
  it('is nothing if the last word is masked', async () => {
    const analysis = await analysed()
    const tokens = analysis.tokens.map((token, at) => (at === 10 ? { ...token, kind: 'special' as const } : token))
    expect(cutSentence({ ...analysis, tokens, keyTokens: tokens, mask: [10] })).toBe('')
  })

  it('is reported if the tokens end before the text does', async () => {
    const analysis = await analysed()
    expect(cutSentence(analysis)).toBe('')
    const tokens = analysis.tokens.slice(0, 6)
    expect(cutSentence({ ...analysis, tokens, keyTokens: tokens })).toBe('Truncated to 6 tokens; the text is longer.')
  })

  it('is not reported for spaces and marks at the end', async () => {
    const analysis = await analysed('One two \u{1f468}\u{1f469}')
    const tokens = analysis.tokens.slice(0, 3)
    expect(cutSentence({ ...analysis, tokens, keyTokens: tokens })).toBe('')
  })
})

describe('how near the numbers are', () => {
  const map = (error?: number) => ({
    data: Float32Array.of(1, 2, 3),
    rows: 1,
    cols: 3,
    exact: true,
    ...(error ? { error } : {}),
  })
  const axis = {
    labels: ['a', 'b'],
    special: [false, false],
    start: Int32Array.of(0, 2, 3),
    of: Int32Array.of(0, 0, 1),
  }
  const row = { labels: ['a'], special: [false], start: Int32Array.of(0, 1), of: Int32Array.of(0) }

  it('is stated for every map', () => {
    expect(precisionOf(map())).toBe('exact (float32)')
    expect(precisionOf(map(0.0012))).toBe('rounded to within 0.0012')
    expect(precisionOf({ ...map(), exact: false })).toContain('thumbnail')
  })

  it('is not forgotten by what is computed from it', () => {
    expect(difference(map(0.25), map(0.5)).error).toBe(0.75)
    expect(difference(map(), map()).error).toBeUndefined()
    expect(groupMap(map(0.25), row, axis).error).toBe(0.5)
    expect(mergeMaps([map(0.25), map(0.5)], 'mean').error).toBe(0.5)
  })
})
