/** An effect as code: a Python script and a shell command that give the same numbers. */
import type { Analysis } from '../data/analysis'
import type { EffectRequest } from '../data/effects'
import {
  curlId,
  curlPost,
  effectMethod,
  type Fold,
  mapQuery,
  pythonEffectCall,
  readId,
  requestOf,
  type SnippetSide,
  shellQuoted,
  takesEffects,
} from './snippets'

/** Undefined for what the library does not take: conversations and generated texts. */
export function pythonEffect(analysis: Analysis, request: EffectRequest): string | undefined {
  if (!takesEffects(analysis)) return undefined
  const together = request.heads ? ['print(effect.together)', 'print(effect.together.after.texts[0])'] : []
  const printed = ['print(effect.target, effect.target.value)', 'print(effect.top(10))', ...together]
  return `${['import headscope', '', ...pythonEffectCall(analysis, request), ...printed].join('\n')}\n`
}

/** A command that asks the server at `root` for the analysis, and then for the effect. */
export function curlEffect(analysis: Analysis, request: EffectRequest, root: string): string {
  return [...curlAnalysis(analysis, root), curlRequest(request, root), ''].join('\n')
}

/** The same, and then for the map of a head as JSON. */
export function curlEffectMap(side: SnippetSide, request: EffectRequest, root: string, fold?: Fold): string {
  return [
    ...curlAnalysis(side.analysis, root),
    `effect=$(${curlRequest(request, root)} ${readId})`,
    `curl --silent --fail ${shellQuoted(root)}"analyses/$id/effects/$effect/maps?${mapQuery(side, fold)}"`,
    '',
  ].join('\n')
}

const curlAnalysis = (analysis: Analysis, root: string) =>
  curlId({ ...requestOf(analysis, ['weights']), maps: false }, root)

function curlRequest(request: EffectRequest, root: string): string {
  const { target, position, against, reference } = request
  const body = {
    ...(target.length > 0 ? { target } : {}),
    ...(position === null ? {} : { position }),
    ...(against === undefined ? {} : { against }),
    ...(reference ? { reference } : {}),
    method: effectMethod(request),
  }
  return `${curlPost(`${shellQuoted(root)}"analyses/$id/effects"`, 60)} --data ${shellQuoted(JSON.stringify(body))}`
}
