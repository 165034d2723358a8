/** An effect as code: a Python script and a shell command that give the same numbers. */
import { type Analysis, headName } from '../data/analysis'
import type { EffectRequest } from '../data/effects'
import { curlId, curlPost, type Json, pythonLiteral, requestOf, shellQuoted } from './snippets'

/** What `headscope.effect` takes of an analysis. */
const GIVEN = ['text', 'text_pair', 'token_ids', 'target_ids', 'mask', 'max_tokens', 'kind']

const methodOf = ({ method, heads }: EffectRequest): Record<string, Json> => ({
  ...(method as Record<string, Json>),
  ...(heads ? { heads: heads.map(headName) } : {}),
})

/** Undefined for what the library does not take: conversations and generated texts. */
export function pythonEffect(analysis: Analysis, request: EffectRequest): string | undefined {
  const { model, image, messages, generate, ...rest } = requestOf(analysis, [])
  if (messages || generate) return undefined
  const { target, position, against } = request
  const outputs = target.map((one) => pythonLiteral(one))
  const given = Object.entries(rest).filter(([name]) => GIVEN.includes(name))
  const lines = [
    pythonLiteral(model),
    ...(image ? ['image="image.png"'] : []),
    ...given.map(([name, value]) => `${name}=${pythonLiteral(value)}`),
    ...(outputs.length > 0 ? [`target=${outputs.length > 1 ? `(${outputs.join(', ')})` : outputs[0]}`] : []),
    ...(position === null ? [] : [`position=${position}`]),
    ...(against === undefined ? [] : [`against=${pythonLiteral(against)}`]),
    `method=${pythonLiteral(methodOf(request))}`,
  ]
  const call = ['effect = headscope.effect(', ...lines.map((line) => `    ${line},`), ')']
  const together = request.heads ? ['print(effect.together)', 'print(effect.together.after.texts[0])'] : []
  return `${['import headscope', '', ...call, 'print(effect.target, effect.target.value)', 'print(effect.top(10))', ...together].join('\n')}\n`
}

/** A command that asks the server at `root` for the analysis, and then for the effect. */
export function curlEffect(analysis: Analysis, request: EffectRequest, root: string): string {
  const { target, position, against } = request
  const body = {
    ...(target.length > 0 ? { target } : {}),
    ...(position === null ? {} : { position }),
    ...(against === undefined ? {} : { against }),
    method: methodOf(request),
  }
  const analysed = { ...requestOf(analysis, ['weights']), maps: false }
  return [
    ...curlId(analysed, root),
    `${curlPost(`${shellQuoted(root)}"analyses/$id/effects"`, 60)} --data ${shellQuoted(JSON.stringify(body))}`,
    '',
  ].join('\n')
}
