/** Convert the JSON of the REST interface to the types of the viewer. */
import type {
  Analysis,
  AttentionWindow,
  Declaration,
  KindSupport,
  MapInfo,
  Method,
  Model,
  Reasons,
  Run,
  Subset,
} from '../lib/data/analysis'
import type { HistoryItem } from '../lib/data/source'
import { extent, scatter, subsetOf } from '../lib/data/subset'
import { writeMessages } from '../lib/text/messages'
import type { components } from './schema'

type Schemas = components['schemas']
export type WireModel = Schemas['ModelCard']
export type WireDeclaration =
  | Schemas['DeclarationSchema']
  | Schemas['LensSchema']
  | Schemas['MeasureSchema']
  | Schemas['EffectMethodSchema']
export type WireSupport = Schemas['ModelDetail']
export type WireAnalysis = Schemas['AnalysisDocument']
export type WireRequest = Schemas['AnalysisRequest']
export type WireRun = Pick<WireAnalysis, 'id' | 'status' | 'progress' | 'attempts' | 'error'>
export type WireValues = Schemas['MeasureValues']
export type WireSession = Schemas['Session']
export type WireProviderOffer = Schemas['ProviderOffer']
export type WireSignInStart = Schemas['SignInStart']
export type WireSignInCode = Schemas['SignInCode']
export type WireHistoryItem = Schemas['AnalysisItem']
export type WireShare = Schemas['Share']
export type WireSearchAnswer = Schemas['Asked']
export type WireEffect = Schemas['EffectDocument']
export type WireFound = Schemas['FoundHeads']

export const readHistoryItem = (wire: WireHistoryItem): HistoryItem => ({
  id: wire.id,
  model: wire.model,
  mechanism: wire.mechanism.name,
  text: wire.text ?? writeMessages(wire.messages ?? []),
  textPair: wire.text_pair ?? '',
  image: wire.image !== null,
  settings: JSON.stringify([wire.mechanism, wire.generate, wire.mask, wire.messages]),
  when: 1000 * wire.created,
})

const readMethod = ({ name, ...params }: Schemas['MechanismSchema']): Method => ({ name, params })

export const readModel = (wire: WireModel): Model => ({
  name: wire.name,
  title: wire.title,
  description: wire.description,
  family: wire.family,
  license: wire.license,
  hub: wire.hub,
  parameters: wire.parameters,
  bytes: wire.bytes,
  removable: wire.removable,
  kind: wire.kind,
  images: wire.images,
  layers: wire.layers,
  heads: wire.heads,
  headWidth: wire.head_width,
  maxTokens: wire.max_tokens,
  available: wire.available,
  local: wire.local,
  isDefault: wire.default,
  reason: wire.reason,
  mechanism: readMethod(wire.mechanism),
  chats: wire.chats ?? false,
  quantisation: wire.quantisation ?? null,
  quantisedBy: wire.quantised_by ?? null,
  predicts: wire.predicts,
  siblings: wire.siblings,
})

const reasons = (items: Schemas['Support'][]): Reasons =>
  Object.fromEntries(items.map(({ name, supported, reason }) => [name, supported ? null : (reason ?? 'not supported')]))

export const readSupport = (wire: WireSupport): KindSupport[] =>
  wire.kinds.map(({ kind, lenses, mechanisms, measures, effects }) => ({
    kind,
    lenses: reasons(lenses),
    mechanisms: reasons(mechanisms),
    measures: reasons(measures),
    effects: reasons(effects),
  }))

export const readDeclaration = (wire: WireDeclaration): Declaration => ({
  name: wire.name,
  title: wire.title,
  doc: wire.doc,
  not: wire.not,
  axes: 'shape' in wire ? wire.shape.split(' ') : [],
  unit: wire.unit,
  range: wire.range,
  signed: 'signed' in wire && wire.signed,
  lenses: 'lenses' in wire ? wire.lenses : [],
  citation: wire.citation,
  columns: 'columns' in wire ? wire.columns : [],
  units: 'units' in wire ? wire.units : {},
  classes: 'classes' in wire ? wire.classes : [],
  params: wire.params,
  of: 'of' in wire ? wire.of : 'prediction',
  texts: 'texts' in wire ? wire.texts : {},
})

export const readRun = ({ id, status, progress, attempts, error }: WireRun): Run => ({
  id,
  status,
  progress,
  attempts,
  error,
})

const scatterNotes = (map: Schemas['MapSchema'], subset: Subset): MapInfo => ({
  ...map,
  identical: map.identical && scatter(map.identical, subset, false),
  undefined: map.undefined && scatter(map.undefined, subset, 0),
})

/** By layer index; layers that were not analysed have none. */
function windowsOf({ windows, layer_numbers }: WireAnalysis): Analysis['windows'] {
  const all: Analysis['windows'][number][] = new Array(extent(layer_numbers)).fill(null)
  for (const [place, layer] of layer_numbers.entries()) all[layer] = (windows[place] as AttentionWindow | null) ?? null
  return all
}

/** `picture` is the URL of the image, if the input is one. */
export function readAnalysis(wire: WireAnalysis, picture: string): Analysis {
  const { name, params } = readMethod(wire.mechanism)
  const { grid } = wire
  const subset = subsetOf(wire.layer_numbers, wire.head_numbers)
  return {
    ...readRun(wire),
    model: wire.model,
    mechanism: name,
    params,
    kind: wire.kind,
    causal: wire.causal,
    windows: windowsOf(wire),
    lenses: wire.lenses,
    measures: wire.measures,
    layers: extent(wire.layer_numbers),
    heads: extent(wire.head_numbers),
    subset,
    headWidth: wire.head_width,
    text: wire.text ?? '',
    textPair: wire.text_pair ?? '',
    ...(wire.messages ? { messages: wire.messages } : {}),
    texts: [wire.full_text ?? wire.text ?? '', wire.target_text ?? wire.text_pair ?? ''],
    pictureUrl: wire.image && wire.status === 'done' ? picture : '',
    picture: grid && { url: picture, rows: grid.rows, columns: grid.columns, size: grid.size },
    image: wire.image ?? '',
    // The encoder's text is never continued, so only the decoder has generated tokens.
    generated: wire.kind === 'encoder' ? 0 : wire.generated,
    generate: wire.generate,
    maxTokens: wire.max_tokens,
    mask: wire.mask ?? [],
    tokens: wire.tokens,
    keyTokens: wire.key_tokens ?? wire.tokens,
    maps: subset
      ? Object.fromEntries(Object.entries(wire.maps).map(([lens, map]) => [lens, scatterNotes(map, subset)]))
      : wire.maps,
    warnings: wire.warnings,
    totalMs: wire.timing_ms.total ?? null,
  }
}
