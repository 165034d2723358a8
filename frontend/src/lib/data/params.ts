/** Controls for a method's parameters, read from their JSON Schema; and the way from what is typed to what is sent. */
export type Params = Record<string, unknown>

export interface ParamField {
  name: string
  label: string
  hint: string
  kind: 'number' | 'boolean' | 'choice' | 'list'
  options: string[]
  min: number | undefined
  max: number | undefined
  step: number | 'any'
  /** What holds when nothing is given. */
  initial: unknown
}

interface Schema {
  type?: string
  enum?: unknown[]
  const?: unknown
  anyOf?: Schema[]
  minimum?: number
  exclusiveMinimum?: number
  maximum?: number
  exclusiveMaximum?: number
  default?: unknown
  description?: string
  properties?: Record<string, Schema>
}

export function readFields(params: unknown): ParamField[] {
  const { properties = {} } = params as Schema
  return Object.entries(properties).map(([name, schema]) => fieldOf(name, schema))
}

/** The same parameters with other defaults, where there are any. */
export function withDefaults(params: unknown, values: Params): unknown {
  const { properties = {}, ...rest } = params as Schema
  const entries = Object.entries(properties).map(([name, schema]) => {
    const value = name in values ? values[name] : schema.default
    return [name, { ...schema, default: value }]
  })
  return { ...rest, properties: Object.fromEntries(entries) }
}

function fieldOf(name: string, outer: Schema): ParamField {
  // A parameter that may be left out is written as one schema or null.
  const schema = { ...outer, ...(outer.anyOf?.find(({ type }) => type !== 'null') ?? {}) }
  const numeric = schema.type === 'number' || schema.type === 'integer'
  return {
    name,
    label: name.replaceAll('_', ' '),
    hint: outer.description ?? '',
    kind: schema.enum ? 'choice' : schema.type === 'boolean' ? 'boolean' : numeric ? 'number' : 'list',
    options: (schema.enum ?? []).map(String),
    min: schema.minimum ?? schema.exclusiveMinimum,
    max: schema.maximum ?? schema.exclusiveMaximum,
    step: schema.type === 'integer' ? 1 : 'any',
    initial: outer.default,
  }
}

/** A value as it stands in a text box. */
export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return ''
  if (!Array.isArray(value)) return String(value)
  return value.some(Array.isArray) ? JSON.stringify(value) : value.join(', ')
}

/** What was typed, as a value; undefined where nothing was, or where it cannot be read. */
export function parseValue(field: ParamField, text: string): unknown {
  const trimmed = text.trim()
  if (trimmed === '') return undefined
  if (field.kind === 'number') return Number.isFinite(Number(trimmed)) ? Number(trimmed) : undefined
  if (field.kind !== 'list') return trimmed
  if (trimmed.startsWith('[')) return parsedJson(trimmed)
  return trimmed.split(/[\s,]+/).map((item) => (numbers(field) ? Number(item) : item))
}

/** Lists of numbers are declared as layers or heads by number; "4.5" names a head and stays text. */
const numbers = (field: ParamField) => field.initial === null || field.initial === undefined

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Parameters that stand in the address; anything else counts as none. */
export function readParams(text: string): Params {
  const found = parsedJson(text)
  return typeof found === 'object' && found !== null && !Array.isArray(found) ? (found as Params) : {}
}

/** Only what differs from the defaults, so that the address stays short; empty for nothing. */
export function writeParams(fields: readonly ParamField[], values: Params): string {
  const changed = fields.filter(
    ({ name, initial }) => values[name] !== undefined && JSON.stringify(values[name]) !== JSON.stringify(initial),
  )
  return changed.length === 0 ? '' : JSON.stringify(Object.fromEntries(changed.map(({ name }) => [name, values[name]])))
}

/** The parameters of one method, as JSON, from a JSON object of those of several; empty for the defaults. */
export function pickParams(all: string, name: string): string {
  const found = readParams(all)[name]
  return found ? JSON.stringify(found) : ''
}

/** The JSON object with other parameters of one method; empty if no method has any left. */
export function replaceParams(all: string, name: string, params: string): string {
  const { [name]: _, ...rest } = readParams(all)
  const next = params === '' ? rest : { ...rest, [name]: readParams(params) }
  return Object.keys(next).length === 0 ? '' : JSON.stringify(next)
}
