/** Types of studies: data sets, requests, results, and the source of them all. */

import type { Problem } from '../net/problem'
import { timeLeft } from '../text/format'
import type { Head, Method, Status } from './analysis'
import type { EffectRequest, Target } from './effects'
import type { Figures } from './figures'
import type { FoundHeads } from './search'
import type { Shares } from './shares'

/** Roles of columns: their names in the REST interface, and in the page. */
export const ROLES: Record<string, string> = {
  text: 'text',
  text_pair: 'second text',
  words: 'words',
  pos: 'parts of speech',
  labels: 'label of each word',
  label: 'label',
  target: 'target',
  minus: 'over',
  against: 'other text',
}

export interface BadRow {
  row: number
  problem: string
}

/** A row of a data set, by its position in the source, counted from 1. */
export interface Row {
  row: number
  text: string
  textPair: string
  label: string
}

/** A row as it will be analysed. */
export interface SampleRow extends Row {
  /** What effects of heads are judged by, empty where the row names nothing: a token or class, what is subtracted from it, and the other text of patching. */
  target: string
  minus: string
  against: string
}

/** How a file was parsed. */
export interface Report {
  /** Null for data sets known by their path. */
  id: string | null
  name: string
  format: string
  encoding: string
  columns: string[]
  /** Column by role. */
  chosen: Record<string, string>
  guessed: boolean
  /** Why a column was given its role, by role. */
  reasons: Record<string, string>
  rows: number
  bad: BadRow[]
  badCount: number
}

export interface Dataset extends Report {
  id: string
  bytes: number
  sample: SampleRow[]
}

/** A data set in a list. */
export interface DatasetItem {
  id: string
  name: string
  bytes: number
}

/** How to parse a file; empty fields are detected. */
export interface ParseOptions {
  format: string
  columns: Record<string, string>
}

export interface StudyProgress {
  fraction: number
  stage: string
  detail: string
  position: number | null
  inputs: number
  of: number
  secondsLeft: number | null
}

export interface ModelMechanism {
  model: string
  mechanism: Method
}

export interface Variant extends ModelMechanism {
  layers: number[]
  heads: number[]
}

export interface StudyRun {
  id: string
  status: Status
  progress: StudyProgress
  error: Problem | null
}

/** A study in a list. */
export interface StudyItem extends StudyRun {
  dataset: string
  variants: ModelMechanism[]
  /** Milliseconds since 1970. */
  when: number
}

/** A page of a list of studies, and the cursor of the next page; null for the last page. */
interface StudyPage {
  items: StudyItem[]
  next: string | null
}

export interface Study extends StudyRun {
  request: Record<string, unknown>
  dataset: Report
  variants: Variant[]
  lenses: string[]
  measures: string[]
  inputs: number
  tokens: number
  cut: number
  failed: BadRow[]
  failedCount: number
  figures: string[]
  tables: string[]
  /** Inputs whose tokens in the two variants could not be aligned; why the variants were not compared at all, empty if they were. */
  unaligned: number
  notCompared: string
  /** By variant: milliseconds by activity. */
  timing: Record<string, number>[]
}

export interface StudyRequest {
  dataset: string
  reading: ParseOptions
  model: string
  /** Null for the mechanism that the model was trained with. */
  mechanism: Method | null
  /** A second variant on the same inputs. */
  against: { model: string; mechanism: Method | null } | null
  lenses: string[]
  measures: string[]
  /** Methods for effects of heads; their target and token in inputs whose row names no target. */
  effects: readonly EffectRequest['method'][]
  target: Target
  position: number | null
  /** Texts over which ablation takes the mean; empty if it needs none. */
  reference: readonly string[]
  figures: string[]
  /** Null for all rows. */
  limit: number | null
  seed: number
  /** Inputs are cut to this many tokens; null for no limit. */
  maxTokens: number | null
  badRows: 'skip' | 'fail'
}

interface TopInput extends Row {
  value: number
}

/** A measure of one head over all inputs, or one of its columns. */
export interface StudyNumber {
  measure: string
  column: string | null
  unit: string
  count: number
  mean: number | null
  std: number | null
  low: number | null
  high: number | null
  /** The interval that contains the median. */
  medianWithin: [number, number] | null
  /** The mean over inputs, each counted once, and its 95 % confidence interval. */
  inputs: number
  inputMean: number | null
  interval: [number, number] | null
  distribution: { edges: number[]; counts: number[] } | null
  top: TopInput[]
}

export interface StudyHead extends Head {
  lens: string
  variant: number
  numbers: StudyNumber[]
  classes: { measure: string; name: string; count: number; share: number }[]
  neighbours: { layer: number; head: number; cosine: number }[]
}

export type TableFormat = 'csv' | 'json' | 'parquet' | 'latex'

/** The source of studies. */
export interface Studies extends Shares {
  datasets(): Promise<DatasetItem[]>
  /** A data set of the server, parsed as requested. */
  dataset(id: string, reading: ParseOptions, signal: AbortSignal): Promise<Dataset>
  /** Calls back with the number of bytes sent. */
  upload(file: File, signal: AbortSignal, report: (sent: number) => void): Promise<Dataset>
  /** Latest first, at most `limit`; `from` is the cursor of a previous page. */
  list(limit: number, from?: string): Promise<StudyPage>
  /** Return as soon as the study has an id; follow it with `watch`. */
  start(request: StudyRequest): Promise<Study>
  /** Restart a study from where it ended. */
  again(study: Study): Promise<Study>
  study(id: string, signal: AbortSignal): Promise<Study>
  /** Call back until a terminal status has been reported. */
  watch(id: string, report: (run: StudyRun) => void, signal: AbortSignal): Promise<void>
  /** Cancel a running study, or delete a finished one. */
  remove(id: string): Promise<void>
  figures: Figures
  /** `params` are those of the figure of the same name, if there is one. */
  table(id: string, name: string, params: Readonly<Record<string, string | number>>, format: TableFormat): Promise<Blob>
  heads(id: string, where: string, lens: string, variant: number): Promise<FoundHeads>
  head(id: string, head: Head, lens: string, variant: number): Promise<StudyHead>
  exportUrl(id: string, format: string, variant: number): string | null
}

export const isOver = ({ status }: { status: Status }) =>
  status === 'done' || status === 'failed' || status === 'cancelled'

/** The name of a number of heads in queries. */
export const numberName = ({ measure, column }: Pick<StudyNumber, 'measure' | 'column'>) =>
  column === null ? measure : `${measure}.${column}`

const settings = ({ name, params }: Method) => {
  const parts = Object.entries(params).map(([key, value]) => `${key.replaceAll('_', ' ')} ${value}`)
  return parts.length === 0 ? name : `${name} (${parts.join(', ')})`
}

/** What tells the variants of a study apart: their models, unless these are the same. */
export function variantNames(variants: readonly ModelMechanism[], titled: (model: string) => string): string[] {
  const models = new Set(variants.map(({ model }) => model))
  if (variants.length > 1 && models.size === 1) return variants.map(({ mechanism }) => settings(mechanism))
  return variants.map(({ model, mechanism }) =>
    mechanism.name === 'softmax' ? titled(model) : `${titled(model)}, ${settings(mechanism)}`,
  )
}

/** `dev.tsv · MiniLM`, or with both variants. */
export function studyTitle(
  dataset: string,
  variants: readonly ModelMechanism[],
  titled: (model: string) => string,
): string {
  const models = new Set(variants.map(({ model }) => model))
  const names = variantNames(variants, titled).join(' and ')
  const of = variants.length > 1 && models.size === 1 ? `${titled(variants[0].model)}, ${names}` : names
  return `${fileName(dataset)} \u00b7 ${of}`
}

/** The last part of a path. */
export const fileName = (path: string) => path.split('/').at(-1) || path

/** `312 of 872 inputs, about 40 s left.` */
export function studyProgressSentence({ stage, position, inputs, of, secondsLeft }: StudyProgress): string {
  if (inputs === 0 && stage === 'queued')
    return position ? `Waiting: ${groupDigits(position)} ahead.` : 'Waiting for a worker.'
  const doing = inputs === 0 && stage === 'loading' ? 'Loading the model. ' : ''
  const count = of > 0 ? `${groupDigits(inputs)} of ${groupDigits(of)} inputs` : 'Reading the data set'
  return `${doing}${count}${secondsLeft === null || secondsLeft < 1 ? '' : `, about ${timeLeft(secondsLeft)} left`}.`
}

/** 21,304 */
export const groupDigits = (count: number) => count.toLocaleString('en-US')

export const counted = (count: number, noun: string) => `${groupDigits(count)} ${noun}${count === 1 ? '' : 's'}`
