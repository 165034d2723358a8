import { expect, it } from 'vitest'
import type { Analysis } from '../../src/lib/data/analysis'
import { curlEffect, pythonEffect } from '../../src/lib/text/effect-snippets'

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
