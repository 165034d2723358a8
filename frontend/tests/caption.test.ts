import { describe, expect, it } from 'vitest'
import { fixedSource, fixedText } from '../src/api/fixed'
import type { Analysis, Request } from '../src/lib/analysis'
import { caption, cutSentence, warningsOf } from '../src/lib/caption'

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
    expect(said).toContain('Head 4.5 of MiniLM, mechanism jump (order 2), read through weights.')
    expect(said).toContain(`12 tokens: \u201c${request.text}\u201d.`)
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
  it('is said where the tokens end before the text does', async () => {
    const analysis = await analysed()
    expect(cutSentence(analysis)).toBe('')
    const tokens = analysis.tokens.slice(0, 6)
    expect(cutSentence({ ...analysis, tokens, keyTokens: tokens })).toBe('Cut to 6 tokens: the text goes on.')
  })

  it('is not said of spaces and marks at the end', async () => {
    const analysis = await analysed('One two \u{1f468}\u{1f469}')
    const tokens = analysis.tokens.slice(0, 3)
    expect(cutSentence({ ...analysis, tokens, keyTokens: tokens })).toBe('')
  })
})
