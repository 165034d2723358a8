/** How a model attends: as it was trained, or as somebody has chosen. */
import type { Declaration, Method, Model } from './analysis'
import { type Params, withDefaults } from './params'

const SOFTMAX: Method = { name: 'softmax', params: {} }

/** What a model was trained with; nearly all were with softmax. */
export const trainedMechanism = (models: readonly Model[], model: string): Method =>
  models.find(({ name }) => name === model)?.mechanism ?? SOFTMAX

/** Without a name the model's own. The parameters that it was trained with hold where no others are given. */
export function resolveMechanism(own: Method, name: string, params: Params): Method {
  const chosen = name || own.name
  return { name: chosen, params: chosen === own.name ? { ...own.params, ...params } : params }
}

export function sameMethod(one: Method, other: Method): boolean {
  const written = ({ name, params }: Method) => JSON.stringify([name, Object.entries(params).sort()])
  return written(one) === written(other)
}

/** A mechanism with the parameters that the model was trained with as its defaults, if that is the one. */
export const withTrainedDefaults = (declaration: Declaration, own: Method): Declaration =>
  declaration.name === own.name ? { ...declaration, params: withDefaults(declaration.params, own.params) } : declaration

/** What it is called in lists: of a model that was not trained with softmax it is said which one it was trained with. */
export const mechanismTitle = ({ name, title }: Declaration, own: Method): string =>
  name === own.name && own.name !== 'softmax' ? `${title}, as trained` : title

/** Models of the same group that can be had. Their titles differ in what stands after the colon. */
export function findTwins(models: readonly Model[], model: string): Model[] {
  const siblings = models.find(({ name }) => name === model)?.siblings ?? []
  return models.filter(({ name, available }) => available && siblings.includes(name))
}

export const twinName = ({ title }: Model): string => title.split(': ').at(-1) ?? title
