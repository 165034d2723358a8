/** Effects of heads on a prediction: the request and the result. */
import type { Analysis, Declaration, Head, Subset } from './analysis'
import { headNumber } from './measures'
import { type Params, readFields, readParams, withDefaults, writeParams } from './params'
import type { ScoreRow } from './score'

/** A token or class, by its text or number. */
export type Output = string | number
/** The model's own choice; one output; or the first over the second. */
export type Target = readonly Output[]

export interface EffectRequest {
  target: Target
  /** The token at which the model predicts; null for a class of the whole input. */
  position: number | null
  method: { name: string } & Readonly<Record<string, unknown>>
  /** These heads together, and each on its own; all of them, each on its own, without. */
  heads?: readonly Head[]
  /** The other text of a patching. */
  against?: string
  /** Texts over which a mean is taken. */
  reference?: readonly string[]
}

export interface Prediction {
  id: number
  text: string
  /** 0 to 1. */
  probability: number
}

export interface Effect {
  target: {
    ids: readonly number[]
    texts: readonly string[]
    /** In logits. */
    value: number
  }
  /** The most likely first. */
  predictions: readonly Prediction[]
  /** In logits, by layer and head; null where there is none. */
  values: (number | null)[][]
  /** The heads of the request at once. */
  together: { effect: number; before: readonly Prediction[]; after: readonly Prediction[] } | null
  /** Of patching, the value of the target in the other text. */
  baseline: number | null
  /** Of methods with a map for every head. */
  maps: EffectMaps | null
  /** The logits that every head raises and lowers most, largest first, by layer and head; null if they were not asked for. */
  writes: (readonly WrittenLogit[])[][] | null
  /** Of a score: the terms of all keys of its query; null for other methods. */
  score: ScoreRow | null
  /** What sums to the target besides heads of this kind: numbers by name, one per layer of `mlp`. */
  parts: Readonly<Record<string, readonly number[]>>
  /** Why there are predictions only. */
  gap?: string
}

/** An output, and what a head adds to its logit. */
export interface WrittenLogit {
  text: string
  logit: number
}

/** The maps of an effect, which are read under a name of their own as those of a lens are. */
export interface EffectMaps {
  name: string
  shape: number[]
  /** The layers and heads of their tensors, if not every layer attends. */
  subset: Subset | null
}

const MAPS = 'effect/'
export const mapsName = (analysis: string, effect: string): string => `${MAPS}${analysis}/${effect}`

export const isMapsName = (lens: string): boolean => lens.startsWith(MAPS)

/** The analysis and the effect of a name; undefined for that of a lens. */
export function parseMapsName(lens: string): { analysis: string; effect: string } | undefined {
  const [analysis, effect] = isMapsName(lens) ? lens.slice(MAPS.length).split('/') : []
  return analysis && effect ? { analysis, effect } : undefined
}

/** Whether a method has a map for every head. */
export const hasMaps = ({ axes }: Declaration): boolean => axes.length === 4

export interface Effects {
  /** `report` is called with the fraction that is done. Aborting cancels the computation. */
  compute(
    analysis: string,
    request: EffectRequest,
    report: (done: number) => void,
    signal: AbortSignal,
  ): Promise<Effect>
}

/** What effects of an analysis depend on, whatever it was read through. */
export function inputKey({ model, kind, mechanism, params, image, tokens, keyTokens }: Analysis): string {
  const ids = (of: Analysis['tokens']) => of.map(({ id }) => id)
  const keys = tokens === keyTokens ? 0 : ids(keyTokens)
  return JSON.stringify([model, kind, mechanism, params, image, ids(tokens), keys])
}

/** The numbers by which the grid is coloured. */
export interface EffectColours {
  declaration: Declaration
  values: Effect['values'] | undefined
  /** They are of another text, token or target than the controls say, or with other parameters. */
  stale: boolean
  /** Those of the controls are being computed. */
  running: boolean
  /** The target of the values and where it is predicted; empty until there are some. */
  about: string
  /** What happens to them; empty if nothing does. */
  said: string
}

const COLOUR = 'effect.'

/** What is chosen to colour the grid by the effects of a method, or as the lens to see its maps. */
export const colourOf = (method: string): string => COLOUR + method

/** The name of the method of a colour or lens; undefined for any other. */
export const methodOf = (colour: string): string | undefined =>
  colour.startsWith(COLOUR) ? colour.slice(COLOUR.length) : undefined

/** Whether heads are coloured by an effect, or a map is that of an effect. */
export const isEffect = (name: string): boolean => methodOf(name) !== undefined

/** Methods that judge heads by a prediction, each in its own way: ALTI-Logit only splits contributions. */
export const judgesOf = (methods: readonly Declaration[]): Declaration[] =>
  methods.filter(({ of, name }) => of === 'prediction' && name !== 'alti-logit')

/** The effects of a method as numbers of heads. */
export const effectNumber = (method: Declaration): Declaration =>
  headNumber({ ...method, name: colourOf(method.name), signed: true })

/** What the page chooses elsewhere: the heads that are off, and contributions by token, which are maps. */
const OWN = ['heads', 'sources']
/** Tokens that the head on screen raises and lowers most. */
const WRITES = 3

/** Texts beside that of the analysis. */
export interface OtherTexts {
  /** What it is compared with; empty without one. */
  against: string
  reference: readonly string[]
}

/** A method with the parameters that the page offers, and its defaults for them: without another text, those that need none. */
export function offered(method: Declaration, { against }: Pick<OtherTexts, 'against'>): Declaration {
  const { parameter = '', values = [] } = method.texts.against ?? {}
  const field = readFields(method.params).find(({ name }) => name === parameter)
  const alone = against === '' ? field?.options.find((option) => !values.includes(option)) : undefined
  const defaults = {
    ...(method.name === 'contribution' ? { writes: WRITES } : {}),
    ...(alone ? { [parameter]: alone } : {}),
  }
  return { ...method, params: withDefaults(method.params, defaults, OWN) }
}

/** The values of all parameters that the page offers; undefined for what has to be chosen. `text`: those that were chosen, as JSON. */
export function methodValues(method: Declaration, text: string, others: Pick<OtherTexts, 'against'>): Params {
  const chosen = readParams(text)
  const fields = readFields(offered(method, others).params)
  return Object.fromEntries(fields.map(({ name, initial }) => [name, chosen[name] ?? initial]))
}

/** Whether a method with these values needs such texts. */
export function needs(method: Declaration, values: Params, texts: keyof Declaration['texts']): boolean {
  const needed = method.texts[texts]
  return needed?.values.includes(String(values[needed.parameter])) ?? false
}

/** What has to be chosen before effects are computed; empty if nothing has. */
export function missing(method: Declaration, values: Params, { against, reference }: OtherTexts): string {
  if (needs(method, values, 'against') && against === '') return `${method.title} needs another text to compare with.`
  if (needs(method, values, 'reference') && reference.length === 0) return 'Type at least one reference text.'
  const unset = readFields(method.params).find(({ name, kind }) => kind === 'head' && !values[name])
  return unset ? `Choose the ${unset.label}: a head, such as 4.5.` : ''
}

/** How a method with these values is requested; undefined while something has to be chosen first. */
export function methodRequest(
  method: Declaration,
  values: Params,
  others: OtherTexts,
): Pick<EffectRequest, 'method' | 'against' | 'reference'> | undefined {
  if (missing(method, values, others)) return undefined
  return {
    method: { name: method.name, ...readParams(writeParams(readFields(method.params), values)) },
    ...(needs(method, values, 'against') ? { against: others.against } : {}),
    ...(needs(method, values, 'reference') ? { reference: others.reference } : {}),
  }
}

/** Estimates patching or ablation, by the value that their parameter has. */
const ESTIMATE = 'attribution-patching'
const EXACT: Record<string, string> = { ablation: 'how', patching: 'direction' }

/** What a method with these values estimates, or its estimate; undefined if there is none. */
export function counterpartOf(method: Declaration, values: Params): { name: string; values: Params } | undefined {
  const { name } = method
  if (name !== ESTIMATE) return EXACT[name] ? { name: ESTIMATE, values: { of: values[EXACT[name]] } } : undefined
  const exact = needs(method, values, 'against') ? 'patching' : 'ablation'
  return { name: exact, values: { [EXACT[exact]]: values.of } }
}

/** Tokens of two texts at the same place, or how many equal ones are left out. */
export type AlignedPlace = { place: number; texts: readonly [string, string]; differ: boolean } | { skipped: number }

/** Two texts of as many tokens place by place: those that differ, and `around` equal ones on each side of them. */
export function alignPlaces(own: readonly string[], other: readonly string[], around = 3): AlignedPlace[] {
  const differs = own.map((text, place) => text !== other[place])
  const near = (place: number) => differs.slice(Math.max(0, place - around), place + around + 1).some(Boolean)
  const all: AlignedPlace[] = []
  for (const [place, text] of own.entries()) {
    const last = all.at(-1)
    if (near(place)) all.push({ place, texts: [text, other[place]], differ: differs[place] })
    else if (last && 'skipped' in last) all[all.length - 1] = { skipped: last.skipped + 1 }
    else all.push({ skipped: 1 })
  }
  return all
}

/** Texts that were typed, one per line. */
export const readLines = (typed: string): string[] => typed.split('\n').filter((line) => line.trim() !== '')

/** The target after a click on a prediction: one, then the first over the second; a click on one that is chosen removes it. */
export function toggleTarget(target: Target, output: Output): Target {
  if (target.includes(output)) return target.filter((one) => one !== output)
  return [...target.slice(0, 1), output]
}

/** The target in the address, a list in JSON. */
export const writeTarget = (target: Target) => (target.length > 0 ? JSON.stringify(target) : '')

export function parseTarget(text: string): Target {
  try {
    const list: unknown = text === '' ? [] : JSON.parse(text)
    return Array.isArray(list) && list.length <= 2 && list.every(isOutput) ? list : []
  } catch {
    return []
  }
}

const isOutput = (one: unknown): one is Output =>
  (typeof one === 'string' && one !== '') || (Number.isInteger(one) && (one as number) >= 0)

/** What was typed: a prediction that reads like it, or else the text as it is. A text in quotes is taken as it is. */
export function readOutput(typed: string, known: readonly Prediction[]): Output | undefined {
  const quoted = /^\s*["\u201c\u201d](.*)["\u201c\u201d]\s*$/.exec(typed)?.[1]
  if (quoted !== undefined) return quoted === '' ? undefined : quoted
  if (typed.trim() === '') return undefined
  const alike = known.find(({ text }) => text === typed) ?? known.find(({ text }) => text.trim() === typed.trim())
  return alike?.id ?? typed
}

/** How many heads have a larger effect than this, whatever the sign, and how many have one; undefined without a value. */
export function rankOf(values: Effect['values'], { layer, head }: Head): { rank: number; count: number } | undefined {
  const value = values[layer]?.[head] ?? null
  if (value === null) return undefined
  const sizes = values
    .flat()
    .filter((one) => one !== null)
    .map(Math.abs)
  return { rank: 1 + sizes.filter((size) => size > Math.abs(value)).length, count: sizes.length }
}
