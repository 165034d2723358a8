/** The fields of the address of an analysis, and which of them belong together. */
import type { Analysis, Method } from '../lib/data/analysis'
import { isEffect } from '../lib/data/effects'
import { sameMethod } from '../lib/data/mechanism'
import { MOST_SELECTED } from '../lib/maths/merge'
import { UNITS } from '../lib/maths/units'
import { writeIds } from '../lib/text/ids'
import { writeMask } from '../lib/text/mask'
import { writeMessages } from '../lib/text/messages'
import {
  choice,
  flag,
  head,
  headList,
  headSet,
  integer,
  layerRange,
  masked,
  notes,
  number,
  pinned,
  type Texts,
  target,
  text,
  token,
  zoomed,
} from './fields.svelte'

export const FIELDS = {
  model: text(),
  text: text(),
  pair: text(),
  /** A conversation instead of a text. */
  chat: text(),
  /** Token ids instead of the texts: of the (encoder's) text, and of the decoder's. */
  ids: text(),
  targets: text(),
  /** An image, by the name under which the server keeps it. */
  image: text(),
  /** How the model continues the text, as JSON; empty if it does not. */
  generate: text(),
  /** How many tokens of the input are read; 0 for all. */
  most: integer('', 0, 1_000_000),
  /** Tokens that are replaced by the mask token. */
  mask: masked(),
  kind: text(),
  /** Empty for the mechanism that the model was trained with. */
  mechanism: text(),
  /** Parameters of the mechanism, as JSON; empty for the defaults. */
  params: text(),
  lens: text('weights'),
  /** Parameters of lenses: one JSON object, by lens. */
  lensparams: text(),
  other: text(),
  compare: choice('off', 'side', 'difference'),
  /** What the open map is compared with: another lens, another head, or an analysis with another mechanism, model or text. */
  with: choice('lens', 'mechanism', 'model', 'text', 'head'),
  /** The other mechanism or model by name, the other text, or the other head such as `4.5`. */
  than: text(),
  /** Parameters of the other mechanism, as JSON. */
  thanparams: text(),
  /** The head of the other model; empty for the same one. */
  twin: head(),
  /** Empty for what suits the window. */
  view: choice('', 'both', 'map', 'graph'),
  /** Only the open head is on screen. */
  focus: flag(),
  head: head(),
  colour: text('map'),
  /** Which heads: a query, or a sentence. */
  find: text(),
  /** How heads are sorted: by layer, by rank, or by a measure, followed by `asc` if ascending. */
  sort: text('layer'),
  /** The layers that the grid shows, such as `8-15`. */
  layers: layerRange(),
  /** Whether the patterns of heads are marked. */
  classes: flag(),
  /** Several heads, merged into one map or each in a small one. */
  heads: headList(MOST_SELECTED),
  merge: choice('mean', 'max', 'each'),
  scale: choice('sqrt', 'linear', 'log'),
  /** Which connections the graph draws, and the bound of each rule. */
  rule: choice('mass', 'top-k', 'value'),
  mass: number('0.7', 0.05, 1),
  k: integer('3', 1, 64),
  value: number('0.1', 0, 1),
  /** How the graph treats special tokens and sinks. */
  special: choice('show', 'mark', 'hide'),
  /** Layout of the graph; empty for the one that suits the text. `image`: over the image whose patches are the tokens. */
  graph: choice('', 'columns', 'rows', 'arcs', 'image'),
  /** Over an image: how opaque the colours are, and whether the image itself is shown too. */
  overlay: number('0.6', 0, 1),
  original: choice('show', 'hide'),
  /** Tokens one by one, or those of a word or a sentence together. */
  unit: choice(...UNITS),
  /** The heads most similar to the open one are listed, by this number. */
  like: choice('', 'cosine', 'divergence'),
  /** What batteries tell about the open head is shown. */
  tests: flag(),
  /** What the strongest colour of a map stands for: the largest value of its head, of each row, of all heads, or of what is visible. */
  range: choice('head', 'row', 'all', 'visible'),
  /** What is pinned, and the visible part of the map. */
  pins: pinned(),
  zoom: zoomed(),
  /** The example or step of the tour that is shown. */
  tour: text(),
  /** Names of the figures that are open, with commas, and whether they are drawn by layer or for the heads of one. */
  figures: text(),
  spread: choice('layer', 'head'),
  /** The scatter of heads is open, with these two measures on its axes. */
  scatter: flag(),
  x: text('entropy'),
  y: text('qk_distance.mean'),
  /** Predictions are open, and what they are judged by: outputs of the model, or its own choice. */
  predict: flag(),
  target: target(),
  /** Where the model predicts while the maps of an effect are open, in which a click pins what it points at and no more. */
  at: token(),
  /** Heads that are switched off. */
  off: headSet(MOST_SELECTED),
  /** Parameters of methods for effects: one JSON object, by method. */
  effectparams: text(),
  /** Why the open head looks at the pinned cell is shown, by what this side brings. */
  why: choice('', 'query', 'key', 'pairs'),
  /** Texts over which a mean is taken, one per line. */
  reference: text(),
  /** Stars and notes on heads. */
  notes: notes(),
  /** A shared analysis, and the key to it. */
  analysis: text(),
  share: text(),
}

export type Patch = Partial<Texts<typeof FIELDS>>

/** What a shared analysis determines itself; the other fields are how to look at it. */
export const DETERMINED = {
  text: '',
  pair: '',
  chat: '',
  ids: '',
  targets: '',
  image: '',
  generate: '',
  most: '',
  mask: '',
  model: '',
  kind: '',
  mechanism: '',
  params: '',
  lensparams: '',
} satisfies Patch
/** A key opens one analysis; what it is compared with would be another. */
export const ALONE = { with: 'lens', than: '', thanparams: '', twin: '' } satisfies Patch
/** Effects need the model, which others who read one analysis cannot run. */
export const NO_EFFECTS = {
  predict: '',
  target: '',
  at: '',
  off: '',
  effectparams: '',
  why: '',
  reference: '',
} satisfies Patch
/** The colour and the lens that take the place of those of effects. */
export const inPlaceOfEffects = (now: { colour: string; lens: string }): Patch => ({
  ...(isEffect(now.colour) ? { colour: 'map' } : {}),
  ...(isEffect(now.lens) ? { lens: 'weights' } : {}),
})
export const NOT_SHARED = { analysis: '', share: '' } satisfies Patch
/** What refers to the tokens of one text. */
export const OF_TOKENS = { mask: '', pins: '', zoom: '', at: '' } satisfies Patch
/** A new input is read whole again. */
export const INPUT = ['text', 'pair', 'chat', 'ids', 'targets'] as const

/** Describe an analysis as fields; by token ids if it was requested by them. `own` is the mechanism that its model was trained with. */
export function describe(analysis: Analysis, own: Method): typeof DETERMINED {
  const {
    text,
    textPair,
    messages = [],
    image,
    generate,
    generated,
    maxTokens,
    mask,
    model,
    kind,
    mechanism,
    params,
    maps,
    tokens,
    keyTokens,
  } = analysis
  const written = (values: object) => (Object.keys(values).length === 0 ? '' : JSON.stringify(values))
  const lensparams = Object.entries(maps).flatMap(([lens, { params }]) => (written(params) ? [[lens, params]] : []))
  const given = keyTokens === tokens ? tokens.slice(0, tokens.length - generated) : keyTokens
  const trained = sameMethod(own, { name: mechanism, params })
  const numbers = kind !== 'decoder' && text === '' && image === '' && messages.length === 0
  return {
    text,
    pair: textPair,
    chat: writeMessages(messages),
    ids: numbers ? writeIds(given.map(({ id }) => id)) : '',
    targets: numbers && keyTokens !== tokens && !generate ? writeIds(tokens.map(({ id }) => id)) : '',
    image,
    generate: generate ? written(generate) : '',
    most: maxTokens ? String(maxTokens) : '',
    // Token ids are those that the model read.
    mask: numbers ? '' : writeMask(mask),
    model,
    kind,
    mechanism: trained ? '' : mechanism,
    params: trained ? '' : written(params),
    lensparams: written(Object.fromEntries(lensparams)),
  }
}
