/** The nouns of one analysis, as the viewer knows them, whoever provides them. */

import type { Problem } from '../net/problem'
import type { Params } from './params'

export interface Token {
  text: string
  id: number
  start: number
  end: number
  word: number | null
  segment: number
  kind: 'special' | 'punct' | 'word' | 'subword'
  /** Of a patch: left, top, right, bottom in pixels of the picture; null for tokens that are no patches. */
  box?: readonly [number, number, number, number] | null
}

/** How a picture became tokens: rows and columns of patches; width and height of it, as the model sees it, in pixels. */
export interface Picture {
  url: string
  rows: number
  columns: number
  size: readonly [number, number]
}

export interface Head {
  layer: number
  head: number
  /** Several heads read as one map, this one among them. */
  among?: Several
}

/** The layers and heads of a partial analysis, by index. */
export interface Subset {
  layers: readonly number[]
  heads: readonly number[]
}

export interface Several {
  heads: readonly Head[]
  how: 'mean' | 'max'
}

export const headName = ({ layer, head }: Head) => `${layer}.${head}`

/** What stands over a picture of it. */
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

/** What is known while an analysis runs. */
export interface Run {
  id: string
  status: Status
  progress: Progress
  attempts: number
  error: Problem | null
}

export interface MapInfo {
  shape: number[]
  /** One map per layer, for all of its heads. */
  by_layer: boolean
  signed: boolean
  /** Its maps are kept; else only thumbnails are. */
  stored: boolean
  identical: boolean[][] | null
  /** Parameters of its lens. */
  params: Record<string, unknown>
  /** Queries without a reading, per layer and head; null where every one has one. */
  undefined: number[][] | null
}

export interface Analysis extends Run {
  model: string
  mechanism: string
  /** Parameters of the mechanism. */
  params: Record<string, unknown>
  kind: string
  lenses: string[]
  measures: string[]
  /** Up to the last one that was analysed. */
  layers: number
  heads: number
  /** Which layers and heads were analysed; null if all were. */
  subset: Subset | null
  headWidth: number
  text: string
  textPair: string
  /** What was asked for instead of a text, as the model sees it; null for texts. */
  picture: Picture | null
  /** The name under which the source keeps the image that was sent; empty for texts. */
  image: string
  /** How the model was asked to write on; null where the text is taken as it is. */
  generate: Params | null
  /** How many tokens at the end, along the queries, the model wrote itself. */
  generated: number
  /** How many tokens the input was to be cut to; null where all of it is read. */
  maxTokens: number | null
  /** Along the queries. */
  tokens: Token[]
  /** Along the keys: the same array, but for cross-attention. */
  keyTokens: Token[]
  maps: Record<string, MapInfo>
  warnings: Warning[]
  /** Milliseconds from the start of the work to its end. */
  totalMs: number | null
}

const sameTokens = (one: readonly Token[], other: readonly Token[]) =>
  one.length === other.length && one.every(({ id, start }, at) => id === other[at].id && start === other[at].start)

/** Whether two analyses are of the same tokens, so that what was pointed at in one stands in the other. */
export const hasSameTokens = (one: Analysis | undefined, other: Analysis | undefined): boolean =>
  one !== undefined &&
  other !== undefined &&
  sameTokens(one.tokens, other.tokens) &&
  sameTokens(one.keyTokens, other.keyTokens)

export type ModelKind = 'encoder' | 'decoder' | 'encoder-decoder' | 'vision'

export interface Model {
  name: string
  title: string
  description: string
  kind: ModelKind
  layers: number
  heads: number
  headWidth: number
  maxTokens: number | null
  available: boolean
  local: boolean
  isDefault: boolean
  reason: string | null
  /** The one that it was trained with, with all of its parameters. */
  mechanism: Method
  /** Models that differ from it in little. */
  siblings: string[]
}

/** Name of a lens, mechanism or measure -> why the model cannot carry it; null where it can. */
export type Reasons = Record<string, string | null>

/** What can be done with one kind of a model's attention. */
export interface KindSupport {
  kind: string
  lenses: Reasons
  mechanisms: Reasons
  measures: Reasons
}

/** What the server says about one lens, mechanism or measure; controls and words are drawn from it. */
export interface Declaration {
  name: string
  title: string
  doc: string
  not: string
  axes: string[]
  unit: string
  range: [number | null, number | null]
  signed: boolean
  /** For measures: the lenses they can be asked about. */
  lenses: string[]
  citation: string
  /** For measures of several numbers: what they are called, and what the numbers of a class mean. */
  columns: string[]
  /** The unit of each column. */
  units: Record<string, string>
  classes: string[]
  /** JSON Schema of the parameters. */
  params: unknown
}

/** A mechanism or lens by its name, with the parameters that differ from the defaults. */
export interface Method {
  name: string
  params: Record<string, unknown>
}

export interface Request {
  model: string
  text: string
  textPair: string
  /** Token ids instead of a text, taken as they are; `targetIds` those of a decoder beside an encoder. */
  ids?: readonly number[]
  targetIds?: readonly number[]
  /** An image instead of a text: a data URL, or the name of one that the source keeps. */
  image?: string
  /** How the model shall write on; without it the text is taken as it is. */
  generate?: Params
  /** Only that many tokens of the input are read. */
  maxTokens?: number
  kind: string
  mechanism: Method
  lenses: Method[]
  measures: string[]
  /** False for thumbnails and numbers only. */
  maps?: false
}

/** One map for all heads of a layer, not one for each. */
export const readsLayers = ({ axes }: Declaration) => axes[1] === '1'

/** One number per head, or one per head and token: what the page can colour heads by. */
export const perHead = ({ axes }: Declaration) =>
  axes[0] === 'L' && axes[1] === 'H' && (axes.length === 2 || (axes.length === 3 && 'QK'.includes(axes[2])))

/** Everything that is one number per head: of measures that give several, each column by itself. */
export function headNumbers(measures: readonly Declaration[]): Declaration[] {
  return measures.flatMap((measure) => {
    if (perHead(measure)) return [measure]
    if (measure.axes.join(' ') !== 'L H C') return []
    return measure.columns.flatMap((column) =>
      column === 'class'
        ? []
        : [
            {
              ...measure,
              name: `${measure.name}.${column}`,
              unit: measure.units[column] ?? measure.unit,
              title: `${measure.title}: ${column.replaceAll('_', ' ')}`,
              axes: ['L', 'H'],
              columns: [],
              classes: [],
            },
          ],
    )
  })
}

/** A measure speaks about the open lens where it can, else about the one it is defined for. */
export const measuredLens = ({ lenses }: Declaration, open: string) =>
  lenses.includes(open) ? open : (lenses[0] ?? 'weights')
