/** The nouns of one analysis, as the viewer knows them, whoever provides them. */
import type { Problem } from './problem'

export interface Token {
  text: string
  id: number
  start: number
  end: number
  word: number | null
  segment: number
  kind: 'special' | 'punct' | 'word' | 'subword'
}

export interface Head {
  layer: number
  head: number
}

export const headName = ({ layer, head }: Head) => `${layer}.${head}`

export function parseHead(text: string): Head | undefined {
  const match = /^(\d{1,3})\.(\d{1,3})$/.exec(text)
  return match ? { layer: Number(match[1]), head: Number(match[2]) } : undefined
}

export interface Progress {
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
  signed: boolean
  identical: boolean[][] | null
}

export interface Analysis extends Run {
  model: string
  mechanism: string
  lenses: string[]
  measures: string[]
  layers: number
  heads: number
  headWidth: number
  text: string
  textPair: string
  tokens: Token[]
  maps: Record<string, MapInfo>
  warnings: Warning[]
  /** Milliseconds from the start of the work to its end. */
  totalMs: number | null
}

export interface Model {
  name: string
  title: string
  description: string
  layers: number
  heads: number
  headWidth: number
  maxTokens: number | null
  available: boolean
  local: boolean
  isDefault: boolean
  reason: string | null
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
}

export interface Request {
  model: string
  text: string
  textPair: string
  mechanism: string
  lenses: string[]
  measures: string[]
}

/** A measure speaks about the open lens where it can, else about the one it is defined for. */
export const measuredLens = ({ lenses }: Declaration, open: string) =>
  lenses.includes(open) ? open : (lenses[0] ?? 'weights')
