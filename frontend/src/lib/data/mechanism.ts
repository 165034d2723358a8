/** The attention mechanism of a model: the one it was trained with, or another one. */
import type { Declaration, Method, Model } from './analysis'
import { type Params, withDefaults } from './params'

const SOFTMAX: Method = { name: 'softmax', params: {} }

/** The mechanism that a model was trained with; softmax for nearly all. */
export const trainedMechanism = (models: readonly Model[], model: string): Method =>
  models.find(({ name }) => name === model)?.mechanism ?? SOFTMAX

/** The mechanism to use: without a name the model's own, whose trained parameters apply unless overridden. */
export function resolveMechanism(own: Method, name: string, params: Params): Method {
  const chosen = name || own.name
  return { name: chosen, params: chosen === own.name ? { ...own.params, ...params } : params }
}

export function sameMethod(one: Method, other: Method): boolean {
  const written = ({ name, params }: Method) => JSON.stringify([name, Object.entries(params).sort()])
  return written(one) === written(other)
}

/** The declaration with trained parameters as its defaults, if it is the model's own mechanism. */
export const withTrainedDefaults = (declaration: Declaration, own: Method): Declaration =>
  declaration.name === own.name ? { ...declaration, params: withDefaults(declaration.params, own.params) } : declaration

/** The title in lists; it marks a trained mechanism other than softmax. */
export const mechanismTitle = ({ name, title }: Declaration, own: Method): string =>
  name === own.name && own.name !== 'softmax' ? `${title}, as trained` : title

/** Available models of the same group. Their titles differ after the colon. */
export function findTwins(models: readonly Model[], model: string): Model[] {
  const siblings = models.find(({ name }) => name === model)?.siblings ?? []
  return models.filter(({ name, available }) => available && siblings.includes(name))
}

export const twinName = ({ title }: Model): string => title.split(': ').at(-1) ?? title
