/** Effects of heads in a study: its methods and their parameters, and the numbers that it keeps of them. */
import type { Declaration } from './analysis'
import { type EffectRequest, methodRequest, methodValues, missing, needs, type OtherTexts, offered } from './effects'
import { headNumber } from './measures'
import { type Params, withDefaults, withoutOptions } from './params'

/** The method that a figure of effects is drawn for if none is named. */
export const USUAL = 'contribution'
/** Stands for the other text of every input. */
const PAIRED = 'paired'

const texts = (paired: boolean): OtherTexts => ({ against: paired ? PAIRED : '', reference: [] })

/** Tokens that heads raise are not reported. */
const valuesOf = (method: Declaration, text: string, paired: boolean): Params => ({
  ...methodValues(method, text, texts(paired)),
  writes: 0,
})

/** A method with the parameters that studies offer: they read no reference texts. `paired`: every input has another text. */
export function offeredInStudies(method: Declaration, paired: boolean): Declaration {
  const { parameter = '', values = [] } = method.texts.reference ?? {}
  const own = offered(method, texts(paired))
  return { ...own, params: withoutOptions(withDefaults(own.params, {}, ['writes']), parameter, values) }
}

/** What has to be chosen before a study computes these effects; empty if nothing has. `text`: its parameters, as JSON. */
export function missingInStudies(method: Declaration, text: string, paired: boolean): string {
  const values = valuesOf(method, text, paired)
  return needs(method, values, 'against') && !paired
    ? `${method.title} needs another text for every input. Choose its column under Data.`
    : missing(method, values, texts(paired))
}

/** How a study requests a method; undefined while something has to be chosen first. */
export const studyMethod = (method: Declaration, text: string, paired: boolean): EffectRequest['method'] | undefined =>
  methodRequest(method, valuesOf(method, text, paired), texts(paired))?.method

/** The numbers that a study keeps of a method: the mean effect, and how often a head raises the target. */
export const studyNumbers = (method: Declaration): Declaration[] => [
  headNumber({ ...method, name: `${method.name}.effect`, title: `${method.title}: effect`, signed: true }),
  headNumber({
    ...method,
    name: `${method.name}.raises`,
    title: `${method.title}: inputs with the target raised`,
    doc: 'The share of inputs in which the head raises the target.',
    unit: '1',
    range: [0, 1],
    signed: false,
  }),
]
