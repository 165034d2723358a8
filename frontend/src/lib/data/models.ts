/** The models of a server: how they are searched and described, and how they are added and removed. */
import { bytes } from '../text/format'
import type { Analysis, Model } from './analysis'

/** A download that is under way or has failed. */
export interface Download {
  /** From 0 to 1. */
  fraction: number
  detail: string
  /** Why it failed; empty while it is under way. */
  error: string
}

/** Adds models to the server and removes them. Every method may throw a SourceError. */
export interface Library {
  /** Start a download; undefined if the model is on the server already. */
  add(model: string): Promise<Download | undefined>
  /** The download of a model, if one is under way or has failed. */
  download(model: string): Promise<Download | undefined>
  /** Cancel a download, dismiss its failure, or remove the model. */
  remove(model: string): Promise<void>
}

const HUB_ID = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/
const KINDS: Record<Model['kind'], string> = {
  encoder: 'encoder',
  decoder: 'decoder',
  'encoder-decoder': 'encoder-decoder',
  vision: 'images',
}

/** The models that have every word of the text in their name, family, kind, size or description. */
export function searchModels(models: readonly Model[], text: string): Model[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  return models.filter((model) => {
    const about = describe(model).toLowerCase()
    return words.every((word) => about.includes(word))
  })
}

const describe = (model: Model) =>
  [model.name, model.title, model.hub, kindLine(model), model.description, sizeLine(model), model.license]
    .filter(Boolean)
    .join(' ')
    .replaceAll('\u00a0', ' ')

/** A hub id that no listed model has, if the text is one. */
export function hubId(models: readonly Model[], text: string): string {
  const id = text.trim().replace(/^https:\/\/huggingface\.co\//, '')
  return HUB_ID.test(id) && !models.some(({ name, hub }) => name === id || hub === id) ? id : ''
}

/** Layers and heads, number of weights, and bytes. What is unknown is left out. */
export function sizeLine({ layers, heads, parameters, bytes: size, local }: Model): string {
  const about = local ? '' : 'about '
  return [
    layers ? `${layers} layers × ${heads} heads` : '',
    parameters ? `${about}${countLine(parameters)} parameters` : '',
    size ? `${bytes(size)}${local ? '' : ' to download'}` : '',
  ]
    .filter(Boolean)
    .join(' · ')
}

function countLine(count: number): string {
  const [scaled, unit] = count >= 1e9 ? [count / 1e9, 'billion'] : count >= 1e6 ? [count / 1e6, 'million'] : [count, '']
  return unit ? `${Number(scaled.toPrecision(3))}\u00a0${unit}` : count.toLocaleString('en')
}

/** What a model reads: the line under its name. */
export const kindLine = ({ kind, images, family, local, available }: Model) =>
  [
    images ? 'images and texts' : KINDS[kind],
    family,
    available ? (local ? 'on this server' : 'on the hub') : 'not available',
  ]
    .filter(Boolean)
    .join(' · ')

/** A model that is known by one analysis only. */
export const unlistedModel = ({ model, layers, heads, headWidth, picture, text }: Analysis): Model => ({
  name: model,
  title: model,
  layers,
  heads,
  headWidth,
  description: '',
  family: '',
  license: null,
  hub: null,
  parameters: null,
  bytes: null,
  removable: false,
  kind: !picture ? 'encoder' : text ? 'decoder' : 'vision',
  images: picture !== null && text !== '',
  maxTokens: null,
  available: true,
  local: true,
  isDefault: false,
  reason: null,
  chats: false,
  quantisation: null,
  quantisedBy: null,
  predicts: null,
  siblings: [],
  mechanism: { name: 'softmax', params: {} },
})
