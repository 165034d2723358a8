/** Effects of heads on a prediction: the request and the result. */
import type { Analysis, Declaration, Head, Subset } from './analysis'
import { headNumber } from './measures'

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

const COLOUR = 'effect.'

/** What is chosen to colour the grid by the effects of a method, or as the lens to see its maps. */
export const colourOf = (method: string): string => COLOUR + method

/** The name of the method of a colour or lens; undefined for any other. */
export const methodOf = (colour: string): string | undefined =>
  colour.startsWith(COLOUR) ? colour.slice(COLOUR.length) : undefined

/** The effects of a method as numbers of heads. */
export const effectNumber = (method: Declaration): Declaration =>
  headNumber({ ...method, name: colourOf(method.name), signed: true })

/** How a method is requested; undefined while another text has to be chosen first. `against`: the other text, empty without one. */
export function methodRequest(
  name: string,
  { how, direction }: { how: string; direction: string },
  against: string,
): Pick<EffectRequest, 'method' | 'against'> | undefined {
  if (name === 'ablation') return { method: { name, how } }
  if (name !== 'patching' && name !== ESTIMATE) return { method: { name } }
  if (against !== '') return { method: { name, [name === ESTIMATE ? 'of' : 'direction']: direction }, against }
  return name === ESTIMATE ? { method: { name, of: how } } : undefined
}

/** Estimates patching if there is another text, or else ablation. */
const ESTIMATE = 'attribution-patching'

/** What a method estimates, or its estimate; undefined if there is none. */
export function counterpartOf(name: string, against: string): string | undefined {
  const exact = against === '' ? 'ablation' : 'patching'
  return { [ESTIMATE]: exact, [exact]: ESTIMATE }[name]
}

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
