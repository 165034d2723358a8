/** Numbers per head as choices: how they are named and grouped, and which of them have no reading for a text. */
import type { Declaration, Reasons, Token } from './analysis'

/** Whether a measure can colour heads: one number per head, or one per head and token. */
export const perHead = ({ axes }: Declaration) =>
  axes[0] === 'L' && axes[1] === 'H' && (axes.length === 2 || (axes.length === 3 && 'QK'.includes(axes[2])))

/** All measures of one number per head; each column of a measure with several is one of them. */
export function headNumbers(measures: readonly Declaration[]): Declaration[] {
  return measures.flatMap((measure) => {
    if (perHead(measure)) return [measure]
    if (measure.axes.join(' ') !== 'L H C') return []
    return measure.columns.filter((column) => column !== 'class').map((column) => columnOf(measure, column))
  })
}

/** The declaration of a number per head that is not a measure. */
export const headNumber = (
  given: Pick<Declaration, 'name' | 'title' | 'doc' | 'not' | 'unit' | 'range' | 'signed'>,
): Declaration => ({
  ...given,
  axes: ['L', 'H'],
  lenses: [],
  citation: '',
  columns: [],
  units: {},
  classes: [],
  params: {},
  of: 'prediction',
  texts: {},
})

function columnOf(measure: Declaration, column: string): Declaration {
  const { name, title, columns, units, unit, range } = measure
  const inShares = /^(from|share)_\d+$/.test(column)
  return {
    ...measure,
    name: `${name}.${column}`,
    unit: units[column] ?? unit,
    range: inShares ? [0, 1] : column.startsWith('cosine_') ? [-1, 1] : range,
    title: `${title}: ${columnTitle(name, column, columns)}`,
    axes: ['L', 'H'],
    columns: [],
    classes: [],
  }
}

/** Starred until the reader stars others. */
export const FAVOURITES = [
  'entropy',
  'null_share',
  'participation_ratio',
  'qk_distance.mean',
  'token_types.special',
  'patterns.diagonality',
]

/** The measure and the column of a number; the column is empty for a measure of one number. */
function splitName(name: string): [measure: string, column: string] {
  const at = name.indexOf('.')
  return at < 0 ? [name, ''] : [name.slice(0, at), name.slice(at + 1)]
}

const KINDS: Record<string, string> = {
  special: 'special tokens',
  punct: 'punctuation',
  word: 'whole words',
  subword: 'pieces of words',
  image: 'the image',
  first: 'the first token',
  separator: 'separators',
}
const ENTITIES: readonly string[] = ['PER', 'LOC', 'ORG', 'MISC', 'same_other']
const isPartOfSpeech = (column: string) => /^[A-Z]+$/.test(column)

const OFFSET_TITLES: Record<string, string> = {
  size: 'relative size at offset',
  cosine: 'cosine of offsets 0 and',
  effective: 'effective rank at offset',
}

/** A column in words. Parts of speech have names that differ from kinds of tokens only in case. */
function columnTitle(measure: string, column: string, columns: readonly string[]): string {
  if (measure === 'token_types') return isPartOfSpeech(column) ? `part of speech: ${column}` : (KINDS[column] ?? column)
  const from = measure === 'qk_distance' && /^from_(\d+)$/.exec(column)
  if (from) return distance(Number(from[1]), columns)
  const at = measure === 'qk_offset' && /^([a-z]+)_(\d+)$/.exec(column)
  if (at) return `${OFFSET_TITLES[at[1]]} ${at[2]}`
  return column.replaceAll('_', ' ')
}

/** The bin of distances that begins there; the last one has no end. */
function distance(start: number, columns: readonly string[]): string {
  const next = columns.map((column) => Number(/^from_(\d+)$/.exec(column)?.[1] ?? 0)).find((other) => other > start)
  if (next === undefined) return `${start} or more tokens away`
  return next - start === 1
    ? `${start} ${start === 1 ? 'token' : 'tokens'} away`
    : `${start} to ${next - 1} tokens away`
}

/** The part of a title that tells a number from its neighbours, first. */
export function menuTitle({ name, title }: Declaration): string {
  const at = title.indexOf(': ')
  return splitName(name)[1] === '' || at < 0 ? title : `${title.slice(at + 2)} · ${title.slice(0, at)}`
}

/** The numbers of one measure stand together. */
export const groupTitle = ({ name, title }: Declaration) =>
  splitName(name)[1] === '' ? 'One number per head' : title.slice(0, Math.max(0, title.indexOf(': ')))

/** Single numbers first, then the columns of each measure. */
export const inGroups = (measures: readonly Declaration[]): Declaration[] => [
  ...measures.filter(({ name }) => splitName(name)[1] === ''),
  ...measures.filter(({ name }) => splitName(name)[1] !== ''),
]

/** The numbers that have every word of the text in their title, name or unit; failing that, in their explanation. */
export function searchMeasures(measures: readonly Declaration[], text: string): Declaration[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const having = (about: (measure: Declaration) => string) =>
    measures.filter((measure) => words.every((word) => about(measure).toLowerCase().includes(word)))
  const named = having(
    ({ name, title, unit }) => `${title} ${name} ${name.replaceAll('_', ' ')} ${unit === '1' ? '' : unit}`,
  )
  return named.length > 0 ? named : having(({ title, doc }) => `${title} ${doc}`)
}

/** Why a number has no reading for this model and text; null if it may have one. */
export function whyEmpty(name: string, tokens: readonly Token[], reasons: Reasons): string | null {
  const [measure, column] = splitName(name)
  const reason = reasons[measure]
  if (reason) return reason
  if (measure === 'token_types' && isPartOfSpeech(column))
    return tokens.some(({ pos }) => pos === column) ? null : 'No word of this text has this part of speech.'
  if (measure === 'token_types' && column in KINDS && column !== 'first' && column !== 'separator')
    return tokens.some(({ kind }) => kind === column) ? null : 'This text has no token of this type.'
  if (measure === 'connections' && ENTITIES.includes(column))
    return tokens.some(({ label }) => label) ? null : 'The words of this text have no entity labels.'
  const from = measure === 'qk_distance' && /^from_(\d+)$/.exec(column)
  return from && Number(from[1]) >= tokens.length ? 'No two tokens of this text are that far apart.' : null
}
