/** The JSON of the REST interface, as far as the page reads it. */
import type { Analysis, Declaration, Model, Problem, Run, Status, Token } from '../lib/analysis'

export interface WireModel {
  name: string
  title: string
  description: string
  layers: number
  heads: number
  head_width: number
  max_tokens: number
  available: boolean
  local: boolean
  default: boolean
  reason: string | null
}

export interface WireDeclaration {
  name: string
  title: string
  doc: string
  not?: string
  shape?: string | string[] | null
  unit?: string | null
  range?: [number | null, number | null] | null
  signed?: boolean
  citation?: string | null
}

export interface WireProgress {
  fraction: number
  stage: string
  detail?: string | null
  position?: number | null
}

export interface WireRun {
  id: string
  status: Status
  progress: WireProgress
  attempts?: number
  error?: Problem | null
}

export interface WireAnalysis extends WireRun {
  model: string
  mechanism: { name: string }
  lenses: string[]
  measures: string[]
  layers: number
  heads: number
  head_width: number
  text: string | null
  text_pair: string | null
  tokens: Token[]
  maps: Record<string, { shape: number[]; signed: boolean; identical?: boolean[][] | null }>
  warnings: { code: string; lens?: string | null; message: string }[]
  timing_ms?: { total?: number | null } | null
}

export interface WireValues {
  values: (number | null)[] | (number | null)[][] | (number | null)[][][]
  shape: number[]
}

export const readModel = (wire: WireModel): Model => ({
  name: wire.name,
  title: wire.title,
  description: wire.description,
  layers: wire.layers,
  heads: wire.heads,
  headWidth: wire.head_width,
  maxTokens: wire.max_tokens,
  available: wire.available,
  local: wire.local,
  isDefault: wire.default,
  reason: wire.reason,
})

export const readDeclaration = (wire: WireDeclaration): Declaration => ({
  name: wire.name,
  title: wire.title || wire.name,
  doc: wire.doc,
  not: wire.not ?? '',
  axes: Array.isArray(wire.shape) ? wire.shape : (wire.shape ?? '').split(/[^A-Za-z]+/).filter(Boolean),
  unit: wire.unit ?? '',
  range: wire.range ?? null,
  signed: wire.signed ?? false,
  citation: wire.citation ?? '',
})

export const readRun = (wire: WireRun): Run => ({
  id: wire.id,
  status: wire.status,
  progress: {
    fraction: wire.progress.fraction,
    stage: wire.progress.stage,
    detail: wire.progress.detail ?? '',
    position: wire.progress.position ?? null,
  },
  attempts: wire.attempts ?? 1,
  error: wire.error ?? null,
})

export function readAnalysis(wire: WireAnalysis): Analysis {
  return {
    ...readRun(wire),
    model: wire.model,
    mechanism: wire.mechanism.name,
    lenses: wire.lenses,
    measures: wire.measures,
    layers: wire.layers,
    heads: wire.heads,
    headWidth: wire.head_width,
    text: wire.text ?? '',
    textPair: wire.text_pair ?? '',
    tokens: wire.tokens,
    maps: Object.fromEntries(
      Object.entries(wire.maps).map(([lens, map]) => [lens, { ...map, identical: map.identical ?? null }]),
    ),
    warnings: wire.warnings.map((warning) => ({ ...warning, lens: warning.lens ?? null })),
    totalMs: wire.timing_ms?.total ?? null,
  }
}
