/** Parameters of a method: controls from their JSON Schema, and conversion between text and values. */
export type Params = Record<string, unknown>

export interface ParamField {
  name: string
  label: string
  hint: string
  kind: 'number' | 'boolean' | 'choice' | 'list' | 'head'
  options: string[]
  min: number | undefined
  max: number | undefined
  step: number | 'any'
  /** The default; undefined for what has to be chosen. */
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
  pattern?: string
  description?: string
  properties?: Record<string, Schema>
}

export function readFields(params: unknown): ParamField[] {
  const { properties = {} } = params as Schema
  return Object.entries(properties).map(([name, schema]) => fieldOf(name, schema))
}

/** A JSON Schema of parameters with other defaults, and without some of them. */
export function withDefaults(params: unknown, values: Params, omitted: readonly string[] = []): unknown {
  const { properties = {}, ...rest } = params as Schema
  const kept = Object.entries(properties).filter(([name]) => !omitted.includes(name))
  const entries = kept.map(([name, schema]) => {
    const value = name in values ? values[name] : schema.default
    return [name, { ...schema, default: value }]
  })
  return { ...rest, properties: Object.fromEntries(entries) }
}

function fieldOf(name: string, outer: Schema): ParamField {
  // An optional parameter is a union of one schema and null.
  const schema = { ...outer, ...(outer.anyOf?.find(({ type }) => type !== 'null') ?? {}) }
  const numeric = schema.type === 'number' || schema.type === 'integer'
  return {
    name,
    label: name.replace(/^do_/, '').replaceAll('_', ' '),
    hint: outer.description ?? '',
    kind: schema.enum
      ? 'choice'
      : schema.type === 'boolean'
        ? 'boolean'
        : numeric
          ? 'number'
          : schema.type === 'string'
            ? 'head'
            : 'list',
    options: (schema.enum ?? []).map(String),
    min: schema.minimum ?? schema.exclusiveMinimum,
    max: schema.maximum ?? schema.exclusiveMaximum,
    step: schema.type === 'integer' ? 1 : 'any',
    initial: outer.default,
  }
}

/** A value as the text of an input field. */
export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return ''
  if (!Array.isArray(value)) return String(value)
  return value.some(Array.isArray) ? JSON.stringify(value) : value.join(', ')
}

/** Parse the text of an input field; undefined if it is empty or invalid. */
export function parseValue(field: ParamField, text: string): unknown {
  const trimmed = text.trim()
  if (trimmed === '') return undefined
  if (field.kind === 'number') return Number.isFinite(Number(trimmed)) ? Number(trimmed) : undefined
  if (field.kind !== 'list') return trimmed
  if (trimmed.startsWith('[')) return parsedJson(trimmed)
  return trimmed.split(/[\s,]+/).map((item) => (numbers(field) ? Number(item) : item))
}

/** A list without a default holds numbers of layers or heads. Elsewhere "4.5" is the name of a head and stays text. */
const numbers = (field: ParamField) => field.initial === null || field.initial === undefined

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Parse the JSON of parameters; anything but an object counts as empty. */
export function readParams(text: string): Params {
  const found = parsedJson(text)
  return typeof found === 'object' && found !== null && !Array.isArray(found) ? (found as Params) : {}
}

/** Write the parameters that differ from their defaults as JSON; empty if none does. */
export function writeParams(fields: readonly ParamField[], values: Params): string {
  const changed = fields.filter(
    ({ name, initial }) => values[name] !== undefined && JSON.stringify(values[name]) !== JSON.stringify(initial),
  )
  return changed.length === 0 ? '' : JSON.stringify(Object.fromEntries(changed.map(({ name }) => [name, values[name]])))
}

/** The parameters of one method in a JSON object by method, as JSON; empty for the defaults. */
export function pickParams(all: string, name: string): string {
  const found = readParams(all)[name]
  return found ? JSON.stringify(found) : ''
}

/** The JSON object by method with other parameters of one of them; empty if nothing remains. */
export function replaceParams(all: string, name: string, params: string): string {
  const { [name]: _, ...rest } = readParams(all)
  const next = params === '' ? rest : { ...rest, [name]: readParams(params) }
  return Object.keys(next).length === 0 ? '' : JSON.stringify(next)
}
