import { describe, expect, it } from 'vitest'
import type { Analysis, MapInfo } from '../../src/lib/data/analysis'
import { bibtexOf, citationOf } from '../../src/lib/text/citation'
import {
  curlRefusal,
  curlSnippet,
  type Fold,
  pythonLiteral,
  pythonSnippet,
  requestOf,
} from '../../src/lib/text/snippets'

const map = { by_layer: false, params: {} } as unknown as MapInfo
const tokens = [101, 7592, 102].map((id) => ({ id })) as Analysis['tokens']
const analysis = {
  id: 'a',
  model: 'minilm',
  text: 'It’s "so".\n',
  textPair: '',
  image: '',
  generate: null,
  generated: 0,
  maxTokens: null,
  mask: [],
  kind: 'self',
  mechanism: 'jump',
  params: { order: 2 },
  tokens,
  keyTokens: tokens,
  subset: null,
  maps: { weights: map, rollout: { ...map, by_layer: true, params: { alpha: 0.5 } } },
} as unknown as Analysis
const side = { analysis, lens: 'weights', head: { layer: 3, head: 1 } }

const fold = (of: number[]): Fold => {
  const labels = [...new Set(of)].map(String)
  const axis = { labels, special: [], start: new Int32Array(), of: Int32Array.from(of), sentences: [] }
  return { unit: 'sentences', sides: [[axis, axis]] }
}

describe('what is on screen as code', () => {
  it('folds maps to sentences in Python, and asks the interface for what it can do', () => {
    const script = pythonSnippet(side, undefined, false, fold([0, 1, 1]))
    expect(script).toContain('attention = fold(attention, [[0],[1,2]], [[0],[1,2]])')
    expect(script).toContain('np.nanmean')
    expect(curlSnippet(side, 'http://h/', fold([0, 1, 1]))).toContain('head=1&groups=0%7C1-2&format=json')
    expect(curlSnippet(side, 'http://h/', { ...fold([0, 1, 1]), unit: 'words' })).toContain('head=1&by=word&format')
    expect(curlRefusal(side, fold([0, 1, 1]))).toBe('')
    expect(curlRefusal(side, fold([0, 1, 0]))).toContain('adjacent')
    const undefined_ = [0, 0, 0, 1].map((count) => [count, count])
    const gaps = { ...analysis, maps: { weights: { ...map, undefined: undefined_ } } } as unknown as Analysis
    expect(curlRefusal({ ...side, analysis: gaps }, fold([0, 1, 1]))).toContain('no reading')
    const among = { heads: [{ layer: 3, head: 1 }], how: 'mean' as const }
    expect(curlRefusal({ ...side, head: { ...side.head, among } })).toContain('single heads')
  })

  it('names everything that determines the numbers', () => {
    expect(requestOf(analysis, ['rollout'])).toEqual({
      model: 'minilm',
      text: 'It’s "so".\n',
      mechanism: { name: 'jump', order: 2 },
      lenses: [{ name: 'rollout', alpha: 0.5 }],
      measures: [],
    })
    expect(requestOf({ ...analysis, text: '' }, ['weights']).token_ids).toEqual([101, 7592, 102])
    expect(requestOf({ ...analysis, text: '', generated: 1 }, ['weights']).token_ids).toEqual([101, 7592])
    const part = { ...analysis, kind: 'cross', maxTokens: 2, subset: { layers: [3], heads: [1] } }
    expect(requestOf(part, ['weights'])).toMatchObject({ kind: 'cross', max_tokens: 2, layers: [3], heads: [1] })
  })

  it('is written as Python and for a shell', () => {
    expect(pythonLiteral({ a: [true, null, 0.5, 'x\n"'] })).toBe('{"a": [True, None, 0.5, "x\\n\\""]}')
    expect(pythonSnippet(side, undefined, false)).toContain('attention = analysis.maps["weights"][3, 1]')
    expect(pythonSnippet({ ...side, lens: 'rollout' }, undefined, false)).toContain('["rollout"][3, 0]')
    const pair = pythonSnippet(side, { ...side, head: { layer: 4, head: 5 } }, true)
    expect(pair).toContain('difference = other - attention')
    expect(pair.match(/headscope\.analyze/g)).toHaveLength(1)
    const other = { ...side, analysis: { ...analysis, id: 'b', mechanism: 'softmax', params: {} } }
    expect(pythonSnippet(side, other, false)).toContain('another = headscope.analyze(')
    const several = {
      heads: [
        { layer: 3, head: 1 },
        { layer: 4, head: 5 },
      ],
      how: 'mean' as const,
    }
    expect(pythonSnippet({ ...side, head: { ...side.head, among: several } }, undefined, false)).toContain(
      'maps.mean(0)',
    )
    const quoted = { ...side, analysis: { ...analysis, text: "it's" } }
    expect(curlSnippet(quoted, 'http://127.0.0.1/api/v1/')).toContain("it'\\''s")
  })
})

describe('citations', () => {
  const of = (citation: string) => bibtexOf({ name: 'lens', title: 'Lens', citation })

  it('are BibTeX of the first paper', () => {
    expect(of('Abnar & Zuidema 2020, Quantifying Attention Flow in Transformers, sec. 3')).toBe(
      '@misc{abnar2020,\n  author = {Abnar and Zuidema},\n  title = {{Quantifying Attention Flow in Transformers}},\n  year = {2020},\n  note = {sec. 3}\n}',
    )
    expect(of('Sun & Marasović 2021, Effective Attention, sec. 2; Brunner et al. 2020')).toContain(
      'author = {Sun and Marasović}',
    )
    expect(of('Kobayashi et al. 2021, A & B, sec. 3')).toMatch(
      /kobayashi2021,\n {2}author = \{Kobayashi and others\},\n {2}title = \{\{A \\& B\}\}/,
    )
  })

  it('keep what cannot be read as a paper', () => {
    expect(of('Null space of [V, 1]; after Sun 2021')).toContain('note = {Null space of [V, 1]; after Sun 2021}')
  })

  it('name the analysis and the version', () => {
    const text = citationOf('Head 3.1.', 'abc', '1.2.3', [])
    expect(text).toContain('Head 3.1. Headscope 1.2.3, analysis abc.')
    expect(text).toContain('version = {1.2.3}')
  })
})
