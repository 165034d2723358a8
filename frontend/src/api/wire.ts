/** From the JSON of the REST interface, as its schema describes it, to the nouns of the viewer. */
import type { Analysis, Declaration, Model, Run } from '../lib/analysis'
import type { components } from './schema'

type Schemas = components['schemas']
export type WireModel = Schemas['ModelCard']
export type WireDeclaration = Schemas['DeclarationSchema'] | Schemas['LensSchema'] | Schemas['MeasureSchema']
export type WireAnalysis = Schemas['AnalysisDocument']
export type WireRequest = Schemas['AnalysisRequest']
export type WireRun = Pick<WireAnalysis, 'id' | 'status' | 'progress' | 'attempts' | 'error'>
export type WireValues = Schemas['MeasureValues']

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
  title: wire.title,
  doc: wire.doc,
  not: wire.not,
  axes: 'shape' in wire ? wire.shape.split(/[^A-Za-z]+/).filter(Boolean) : [],
  unit: wire.unit,
  range: wire.range,
  signed: 'signed' in wire && wire.signed,
  lenses: 'lenses' in wire ? wire.lenses : [],
  citation: wire.citation,
})

export const readRun = ({ id, status, progress, attempts, error }: WireRun): Run => ({
  id,
  status,
  progress,
  attempts,
  error,
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
    maps: wire.maps,
    warnings: wire.warnings,
    totalMs: wire.timing_ms.total ?? null,
  }
}
