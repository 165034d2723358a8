/** Types of an analysis, independent of where it comes from. */

import type { Problem } from '../net/problem'
import type { Params } from './params'

export interface Token {
  text: string
  id: number
  start: number
  end: number
  word: number | null
  segment: number
  kind: 'special' | 'punct' | 'word' | 'subword' | 'image'
  /** Part of speech and entity label, if the request had them. */
  pos?: string | null
  label?: string | null
  /** In a conversation, the author of the message that the token is part of; null for tokens of the chat template. */
  role?: string | null
  /** Left, top, right, bottom of a patch, in pixels of the picture; null for tokens that are not patches. */
  box?: readonly [number, number, number, number] | null
}

/** One message of a conversation. */
export interface Message {
  role: 'system' | 'user' | 'assistant'
  content: string
}

/** An image as patches: rows and columns of them, and the width and height that the model sees, in pixels. */
export interface Picture {
  url: string
  rows: number
  columns: number
  size: readonly [number, number]
}

export interface Head {
  layer: number
  head: number
  /** Several heads merged into one map, this one among them. */
  among?: MergedHeads
}

/** The layers and heads of a partial analysis, by index. */
export interface Subset {
  layers: readonly number[]
  heads: readonly number[]
}

/** How many tokens before and after itself a query can attend to. */
export type AttentionWindow = readonly [before: number, after: number]

export interface MergedHeads {
  heads: readonly Head[]
  how: 'mean' | 'max'
}

export const headName = ({ layer, head }: Head) => `${layer}.${head}`

/** The title above a picture of a head. */
export const headTitle = (head: Head) =>
  head.among
    ? `${head.among.how === 'mean' ? 'mean' : 'maximum'} of ${head.among.heads.length} heads`
    : `head ${headName(head)}`

export const parseHeads = (text: string): Head[] => text.split(' ').flatMap((name) => parseHead(name) ?? [])

export function parseHead(text: string): Head | undefined {
  const match = /^(\d{1,3})\.(\d{1,3})$/.exec(text)
  return match ? { layer: Number(match[1]), head: Number(match[2]) } : undefined
}

interface Progress {
  fraction: number
  stage: string
  detail: string
  position: number | null
}

export interface Warning {
  code: string
  lens: string | null
  message: string
}

export type Status = 'queued' | 'running' | 'done' | 'failed' | 'cancelled'

/** The state of an analysis that may still be running. */
export interface Run {
  id: string
  status: Status
  progress: Progress
  attempts: number
  error: Problem | null
}

export interface MapInfo {
  shape: number[]
  /** One map per layer, shared by all of its heads. */
  by_layer: boolean
  signed: boolean
  /** Whether whole maps are stored; otherwise only thumbnails are. */
  stored: boolean
  identical: boolean[][] | null
  params: Record<string, unknown>
  /** Queries without a reading, per layer and head; null if there are none. */
  undefined: number[][] | null
}

export interface Analysis extends Run {
  /** Of a submitted analysis: it had been requested and computed before. */
  stored?: boolean
  model: string
  mechanism: string
  /** Parameters of the mechanism. */
  params: Record<string, unknown>
  kind: string
  /** Whether queries see only themselves and earlier tokens. */
  causal: boolean
  /** By layer index; null where queries see all keys. */
  windows: readonly (AttentionWindow | null)[]
  lenses: string[]
  measures: string[]
  /** Up to the last index that was analysed. */
  layers: number
  heads: number
  /** Which layers and heads were analysed; null if all were. */
  subset: Subset | null
  headWidth: number
  text: string
  textPair: string
  /** The conversation, if the input is one. */
  messages?: readonly Message[]
  /** The texts that the offsets of the tokens refer to, by segment, with what the model generated. */
  texts: readonly [string, string]
  /** The input image as the model sees it, cut into patches; null for texts, and where the image's tokens are no known patches. */
  picture: Picture | null
  /** The name under which the source keeps the uploaded image, and the address of what the model saw of it; empty for texts. */
  image: string
  pictureUrl: string
  /** How the model continued the text; null if it did not. */
  generate: Params | null
  /** How many of the last tokens, along the queries, the model generated. */
  generated: number
  /** The requested limit of tokens; null if the input is read whole. */
  maxTokens: number | null
  /** Tokens that were replaced by the mask token, in ascending order. */
  mask: readonly number[]
  /** Along the queries. */
  tokens: Token[]
  /** Along the keys: the same array except for cross-attention. */
  keyTokens: Token[]
  maps: Record<string, MapInfo>
  warnings: Warning[]
  /** Milliseconds from start to finish. */
  totalMs: number | null
}

const sameTokens = (one: readonly Token[], other: readonly Token[], masked: readonly number[]) =>
  one.length === other.length &&
  one.every(({ id, start }, at) => start === other[at].start && (id === other[at].id || masked.includes(at)))

/** Whether two analyses have the same tokens, masked or not, so that a selection of tokens is valid in both. */
export function hasSameTokens(one: Analysis | undefined, other: Analysis | undefined): boolean {
  if (!one || !other) return false
  const masked = [...one.mask, ...other.mask]
  return sameTokens(one.tokens, other.tokens, masked) && sameTokens(one.keyTokens, other.keyTokens, masked)
}

/** What logits of a model are about. */
export type Predicts = 'next-token' | 'masked-token' | 'class'

export type ModelKind = 'encoder' | 'decoder' | 'encoder-decoder' | 'vision'

export interface Model {
  name: string
  title: string
  description: string
  /** Architecture, such as `bert`; empty if unknown. */
  family: string
  license: string | null
  /** Its id on the hub. */
  hub: string | null
  /** Number of weights, and their size in bytes; rounded until the model is on the server. */
  parameters: number | null
  bytes: number | null
  /** This reader may remove it from the server. */
  removable: boolean
  kind: ModelKind
  /** It reads an image beside a text. */
  images: boolean
  layers: number
  heads: number
  headWidth: number
  maxTokens: number | null
  available: boolean
  local: boolean
  isDefault: boolean
  reason: string | null
  /** The mechanism that the model was trained with, with all of its parameters. */
  mechanism: Method
  /** It takes conversations. */
  chats: boolean
  /** Types of a GGUF file from which the weights were dequantised; null if they never were quantised. */
  quantisation: string | null
  /** The package that computes with its quantised weights; null if they are not quantised. */
  quantisedBy: string | null
  /** Null if it has no head for any of these, and until the model is on the server. */
  predicts: Predicts | null
  /** Models that differ from this one in a single respect. */
  siblings: string[]
}

/** Name of a lens, mechanism or measure -> why the model does not support it; null if it does. */
export type Reasons = Record<string, string | null>

/** What a model supports for one kind of its attention. */
export interface KindSupport {
  kind: string
  lenses: Reasons
  mechanisms: Reasons
  measures: Reasons
  effects: Reasons
}

/** A lens, mechanism or measure as the server declares it; controls and descriptions are generated from it. */
export interface Declaration {
  name: string
  title: string
  doc: string
  not: string
  axes: string[]
  unit: string
  range: [number | null, number | null]
  signed: boolean
  /** For measures: the lenses they accept. */
  lenses: string[]
  citation: string
  /** For measures with several columns: their names, and the classes that numbers of the column `class` stand for. */
  columns: string[]
  /** The unit of each column. */
  units: Record<string, string>
  classes: string[]
  /** JSON Schema of the parameters. */
  params: unknown
  /** For methods for effects: what they judge heads by. */
  of: 'prediction' | 'score'
  /** For methods for effects: what they need beside the text, by the values of a parameter. */
  texts: Partial<Record<'against' | 'reference', { parameter: string; values: string[] }>>
}

/** A mechanism or lens by name, with the parameters that differ from the defaults. */
export interface Method {
  name: string
  params: Record<string, unknown>
}

export interface Request {
  model: string
  text: string
  textPair: string
  /** A conversation instead of a text. */
  messages?: readonly Message[]
  /** Token ids instead of a text, used as they are; `targetIds` are those of the decoder of an encoder-decoder. */
  ids?: readonly number[]
  targetIds?: readonly number[]
  /** An image instead of a text: a data URL, or the name of an image that the source keeps. */
  image?: string
  /** How the model continues the text; without it the text is not continued. */
  generate?: Params
  /** The input is cut to this many tokens. */
  maxTokens?: number
  /** These tokens are replaced by the mask token. */
  mask?: readonly number[]
  kind: string
  mechanism: Method
  lenses: Method[]
  measures: string[]
  /** False to compute thumbnails and numbers only. */
  maps?: false
}

/** The lenses whose maps are the same in the answers to both requests: those read with the same parameters, if the input and the model are the same. */
export function sharedLenses(one: Request, other: Request): string[] {
  const but = ({ lenses: _, measures: __, ...input }: Request) => JSON.stringify(input)
  if (but(one) !== but(other)) return []
  const read = new Set(one.lenses.map((lens) => JSON.stringify(lens)))
  return other.lenses.filter((lens) => read.has(JSON.stringify(lens))).map(({ name }) => name)
}

/** What the maps of the answer depend on. */
export const readingKey = ({ measures: _, ...reading }: Request): string => JSON.stringify(reading)

/** Whether a lens gives one map per layer instead of one per head. */
export const readsLayers = ({ axes }: Declaration) => axes[1] === '1'

/** The lens that a measure is shown for: the open one if the measure accepts it, otherwise the first that it does. */
export const measuredLens = ({ lenses }: Declaration, open: string) =>
  lenses.includes(open) ? open : (lenses[0] ?? 'weights')
