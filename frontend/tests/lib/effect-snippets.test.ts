import { expect, it } from 'vitest'
import type { Analysis } from '../../src/lib/data/analysis'
import { curlEffect, curlEffectMap, pythonEffect } from '../../src/lib/text/effect-snippets'
import { pythonSnippet } from '../../src/lib/text/snippets'

const tokens = [{ id: 5 }, { id: 9 }]
const analysis = {
  model: 'gpt',
  text: 'It’s',
  textPair: '',
  image: '',
  generate: null,
  generated: 0,
  maxTokens: null,
  mask: [],
  kind: 'self',
  mechanism: 'softmax',
  params: {},
  tokens,
  keyTokens: tokens,
  subset: null,
  maps: {},
} as unknown as Analysis
const request = {
  target: [' a', 7],
  position: 1,
  method: { name: 'ablation', how: 'zero' },
  heads: [{ layer: 0, head: 2 }],
}

it('an effect is written as Python', () => {
  const script = pythonEffect(analysis, request)
  for (const line of [
    '    "gpt",',
    '    text="It’s",',
    '    target=(" a", 7),',
    '    position=1,',
    '    method={"name": "ablation", "how": "zero", "heads": ["0.2"]},',
    'print(effect.together)',
  ])
    expect(script?.split('\n')).toContain(line)
  const own = pythonEffect({ ...analysis, text: '' }, { target: [], position: null, method: { name: 'contribution' } })
  expect(own).toContain('token_ids=[5, 9]')
  expect(own).not.toMatch(/target=|position=|together/)
  expect(pythonEffect({ ...analysis, generate: { max_new_tokens: 3 } }, request)).toBeUndefined()
})

it('an effect is written for a shell', () => {
  const command = curlEffect(analysis, { ...request, against: "It's" }, 'http://h/api/v1/')
  expect(command).toContain(`'http://h/api/v1/'"analyses/$id/effects"`)
  expect(command).toContain(`"against":"It'\\''s"`)
})

it('a map of an effect is written as code, alone and beside a lens', () => {
  const effect = { target: [' a', 7], position: 1, method: { name: 'gradient-attention' } }
  const side = { analysis: { ...analysis, id: '1' }, lens: 'effect/1/2', head: { layer: 0, head: 2 }, effect }
  const alone = pythonSnippet(side, undefined, false)
  expect(alone).toContain('attention = effect.maps[0, 2]  # 0.2, gradient-attention: [Q, K], queries in rows')
  expect(alone).not.toContain('analyze')
  const beside = pythonSnippet(side, { ...side, lens: 'weights', effect: undefined }, true)
  for (const line of ['effect = headscope.effect(', 'analysis = headscope.analyze(', 'difference = other - attention'])
    expect(beside.split('\n')).toContain(line)
  expect(beside).toContain('other = analysis.maps["weights"][0, 2]')
  expect(pythonSnippet(side, { ...side, head: { layer: 1, head: 0 } }, false)).toContain('other = effect.maps[1, 0]')
  const command = curlEffectMap(side, effect, 'http://h/api/v1/')
  expect(command).toContain(`"analyses/$id/effects/$effect/maps?layer=0&head=2&format=json"`)
})
