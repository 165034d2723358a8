/** A Source of seeded data for the gallery and the tests, without a server. */
import type {
  Analysis,
  Declaration,
  Head,
  KindSupport,
  Method,
  Model,
  Request,
  Run,
  Token,
} from '../src/lib/data/analysis'
import { isMapsName } from '../src/lib/data/effects'
import { type HistoryItem, type Source, SourceError } from '../src/lib/data/source'
import { type Matrix, maxMagnitude, type Tiles } from '../src/lib/maths/matrix'
import { fixedComparisons } from './compare'
import { fixedFigures } from './figures'
import { fixedPatches, fixedPicture } from './image'
import { effectiveMap, jumped, leverageOf, weightsMap } from './maps'
import { CLASSES, fixedClass, fixedHeadQueries } from './search'

export const LAYERS = 6
export const HEADS = 12
const HEAD_WIDTH = 32
const SENTENCE = 'The boats lay by the river bank while the bank in town kept the money they had earned.'
const WORDS = `${SENTENCE} It was late in the year and people asked where the water went.`.split(' ')

export function fixedText(tokens: number): string {
  return Array.from({ length: Math.max(1, tokens - 2) }, (_, i) => WORDS[i % WORDS.length].replace('.', '')).join(' ')
}

export function fixedTokens(text: string): Token[] {
  const pieces = [...text.matchAll(/[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu)]
  const special = (name: string, id: number): Token => ({
    text: name,
    id,
    start: 0,
    end: 0,
    word: null,
    segment: 0,
    kind: 'special',
  })
  const inner = pieces.map((match, word): Token => {
    const kind = /[\p{L}\p{N}]/u.test(match[0]) ? 'word' : 'punct'
    return {
      text: match[0],
      id: 1000 + word,
      start: match.index,
      end: match.index + match[0].length,
      word,
      segment: 0,
      kind,
    }
  })
  return [special('[CLS]', 101), ...inner.slice(0, 510), special('[SEP]', 102)]
}

const model = (name: string, title: string, over: Partial<Model> = {}): Model => ({
  name,
  title,
  description: '',
  family: 'bert',
  license: 'Apache-2.0',
  hub: null,
  parameters: 22_700_000,
  bytes: 90_900_000,
  removable: false,
  kind: 'encoder',
  images: false,
  layers: LAYERS,
  heads: HEADS,
  headWidth: HEAD_WIDTH,
  maxTokens: 512,
  available: true,
  local: true,
  isDefault: false,
  reason: null,
  mechanism: { name: 'softmax', params: {} },
  chats: false,
  quantisation: null,
  quantisedBy: null,
  predicts: null,
  siblings: [],
  ...over,
})

const declaration = (name: string, title: string, over: Partial<Declaration>): Declaration => ({
  name,
  title,
  doc: '',
  not: '',
  axes: [],
  unit: '',
  range: [null, null],
  signed: false,
  lenses: ['weights'],
  citation: '',
  columns: [],
  units: {},
  classes: [],
  params: {},
  of: 'prediction',
  texts: {},
  ...over,
})

const MAP_AXES = ['L', 'H', 'Q', 'K']
export const fixedCatalogue = {
  models: [
    model('minilm', 'MiniLM', { isDefault: true }),
    model('gpt2', 'GPT-2', { kind: 'decoder', predicts: 'next-token' }),
    model('vit', 'ViT', { kind: 'vision' }),
    model('bert-base', 'BERT base', { layers: 12, headWidth: 64, available: false, reason: 'needs the network' }),
  ],
  lenses: [
    declaration('weights', 'Weights', {
      axes: MAP_AXES,
      doc: 'The attention weights as the model uses them; every row sums to 1.',
      not: 'Not how much a token matters to the output: weight on a token whose value is small or redundant has no effect.',
    }),
    declaration('effective', 'Effective', {
      axes: MAP_AXES,
      signed: true,
      doc: 'The part of the weights that reaches the output: what the head’s values cannot tell apart is projected away.',
      not: 'Not a distribution: entries may be negative and rows need not sum to 1.',
    }),
    declaration('max-entropy', 'Maximum entropy', {
      axes: MAP_AXES,
      doc: 'The most even weights that give the same output; queries for which none are found have no reading.',
    }),
    declaration('norm', 'Norm of contributions', {
      axes: MAP_AXES,
      doc: 'How long the vectors are that are added up.',
    }),
    declaration('rollout', 'Rollout', {
      axes: ['L', '1', 'Q', 'K'],
      doc: 'Weights multiplied through the layers, one map per layer.',
      params: {
        properties: {
          residual: {
            type: 'number',
            minimum: 0,
            exclusiveMaximum: 1,
            default: 0.5,
            description: 'Share of the residual connection in each layer.',
          },
        },
      },
    }),
  ],
  mechanisms: [
    declaration('softmax', 'Softmax', { doc: 'Attention as trained.' }),
    declaration('jump', 'Jump', {
      doc: 'Scores mixed along tokens that the same keys tie together.',
      params: {
        properties: {
          rho: { type: 'number', default: 5, description: 'Threshold above which a key ties two tokens.' },
          order: {
            type: 'integer',
            minimum: 1,
            maximum: 8,
            default: 1,
            description: 'Jumps of up to this many steps.',
          },
          layers: {
            anyOf: [{ type: 'array', items: { type: 'integer' } }, { type: 'null' }],
            default: null,
            description: 'Layers that jump, counted from 0.',
          },
          how: { type: 'string', enum: ['together', 'apart'], default: 'together' },
          signed: { type: 'boolean', default: false, description: 'Whether two negative scores tie nothing.' },
        },
      },
    }),
  ],
  measures: [
    declaration('entropy', 'Entropy', {
      axes: ['L', 'H', 'Q'],
      unit: 'nats',
      doc: 'How widely a query spreads its weight.',
    }),
    declaration('null_share', 'Null share', {
      axes: ['L', 'H'],
      range: [0, 1],
      doc: 'The share of a map that never reaches the output.',
    }),
    declaration('patterns', 'Pattern', {
      axes: ['L', 'H', 'C'],
      columns: ['margin', 'class'],
      units: { margin: '1', class: '1' },
      classes: CLASSES,
      doc: 'What the map of a head looks like.',
    }),
    declaration('leverage', 'Leverage', {
      axes: ['L', 'H', 'K'],
      range: [0, 1],
      doc: 'How much of the weight on a token survives in place.',
    }),
    // Only for figures.
    ...['qk_spectrum_layer', 'rank', 'residual_ratio', 'token_similarity', 'token_types'].map((name) =>
      declaration(name, name, {}),
    ),
  ],
  effects: [
    declaration('contribution', 'Direct contribution', {
      unit: 'logits',
      doc: 'What a head adds to the logit on the direct path.',
      not: 'Not what happens without the head.',
    }),
    declaration('ablation', 'Ablation', {
      unit: 'logits',
      doc: 'How much the target falls without a head.',
      not: 'Not the head’s share.',
    }),
    declaration('patching', 'Patching', {
      unit: 'logits',
      doc: 'How much of the difference of a target between two texts one head carries.',
      not: 'Not additive.',
    }),
    declaration('gradient-attention', 'Gradient × attention', {
      unit: 'logits',
      axes: ['L', 'H', 'Q', 'K'],
      doc: 'Each attention weight times the gradient of the target there.',
      not: 'Not what happens without the weight.',
    }),
  ],
}

const REFUSED: Record<string, string> = { norm: 'It is not known where this model puts its heads together.' }
const reasons = (items: Declaration[]) => Object.fromEntries(items.map(({ name }) => [name, REFUSED[name] ?? null]))
const fixedSupport: KindSupport = {
  kind: 'self',
  lenses: reasons(fixedCatalogue.lenses),
  mechanisms: reasons(fixedCatalogue.mechanisms),
  measures: reasons(fixedCatalogue.measures),
  effects: {},
}

/** The decoder's tokens of a request with two texts, for cross-attention. */
const queriesOf = (request: Request) => (request.kind === 'cross' ? fixedTokens(request.textPair) : tokensIn(request))
function tokensIn(request: Request): Token[] {
  if (request.image) return fixedPatches()
  const written = writtenIn(request)
  return written === 0
    ? fixedTokens(request.text)
    : fixedTokens(`${request.text} ${fixedText(written + 2)}`).slice(0, -1)
}

const writtenIn = ({ generate }: Request) => Number(generate?.max_new_tokens ?? 0)

const isSigned = (lens: string) => lens === 'effective' || isMapsName(lens)

/** Requests are answered at once unless `delayMs` simulates a run. */
export function fixedSource(delayMs = 0): Source {
  const requests = new Map<string, Request>()
  const tokensOf = (id: string) => tokensIn(requests.get(id)!)
  const mapOf = (id: string, lens: string, head: Head): Matrix => {
    const request = requests.get(id)!
    const plain = weightsMap(tokensOf(id), head)
    const weights = cut(request.mechanism.name === 'jump' ? jumped(plain) : plain, queriesOf(request).length)
    if (lens === 'max-entropy') return withGaps(weights, head)
    return !isSigned(lens) ? weights : effectiveMap(weights, HEAD_WIDTH, head.layer * 31 + head.head)
  }
  return {
    figures: fixedFigures,
    comparisons: fixedComparisons({ tokens: tokensOf, map: mapOf, heads: perHead((head) => head) }),
    catalogue: async () => fixedCatalogue,
    support: async () => [fixedSupport, { ...fixedSupport, kind: 'cross' }],
    async submit(request) {
      if (request.text.trim() === '' && !request.image)
        throw new SourceError('The text is empty. Type a sentence.', 'empty-text', 422)
      const id = `fixed-${requests.size}`
      requests.set(id, request)
      return { ...analysisOf(id, request, tokensOf(id)), ...run(id, delayMs > 0 ? 'running' : 'done', 0) }
    },
    async watch(id, report, signal) {
      for (let step = 1; step <= 10 && !signal.aborted; step++) {
        await new Promise((resolve) => setTimeout(resolve, delayMs / 10))
        report(run(id, step === 10 ? 'done' : 'running', step / 10))
      }
    },
    cancel: async () => {},
    recent: async () => ({
      items: [...requests].map(([id, request]) => pastOf(id, request)).reverse(),
      next: null,
    }),
    analysis: async (id) => analysisOf(id, requests.get(id)!, tokensOf(id)),
    grid: async (id, lens) => tilesOf(!isSigned(lens), lens === 'rollout' ? 1 : HEADS, (head) => mapOf(id, lens, head)),
    map: async (id, lens, head) => mapOf(id, lens, head),
    headQueries: fixedHeadQueries(HEADS, LAYERS),
    overview: async (id, measure) =>
      perHead((head) =>
        measure === 'patterns.class' ? fixedClass(head) : mean(valuesOf(measure, mapOf(id, 'weights', head), head)),
      ),
    measure: async (id, measure, _lens, head) => valuesOf(measure, mapOf(id, 'weights', head), head),
    exportUrl: () => null,
  }
}

/** All of them were requested at noon. */
const pastOf = (id: string, { model, mechanism, text, textPair }: Request): HistoryItem => ({
  id,
  model,
  mechanism: mechanism.name,
  text,
  textPair,
  image: false,
  settings: '',
  when: Date.UTC(2026, 0, 5, 12),
})

const run = (id: string, status: Run['status'], fraction: number): Run => ({
  id,
  status,
  progress: {
    fraction,
    stage: status === 'done' ? 'done' : 'forward',
    detail: `Layer ${Math.ceil(fraction * LAYERS)} of ${LAYERS}`,
    position: null,
  },
  attempts: 1,
  error: null,
})

function analysisOf(id: string, request: Request, tokens: Token[]): Analysis {
  const n = tokens.length
  const identical = perHead(() => n <= HEAD_WIDTH)
  const queries = queriesOf(request)
  const keys = request.kind === 'cross' ? tokens : queries
  const info = ({ name, params }: Method) => ({
    params,
    shape: [LAYERS, name === 'rollout' ? 1 : HEADS, queries.length, n],
    signed: name === 'effective',
    stored: request.maps !== false,
    identical: name === 'effective' ? identical : null,
    by_layer: name === 'rollout',
    undefined: name === 'max-entropy' ? perHead(({ head }) => gapsOf(queries.length, head)) : null,
  })
  const message = `Identical to the weights: ${n} tokens fit into the head’s ${HEAD_WIDTH} dimensions.`
  return {
    ...run(id, 'done', 1),
    model: request.model,
    mechanism: request.mechanism.name,
    params: request.mechanism.params,
    kind: request.kind,
    causal: false,
    windows: [],
    lenses: request.lenses.map(({ name }) => name),
    measures: request.measures,
    layers: LAYERS,
    heads: HEADS,
    subset: null,
    headWidth: HEAD_WIDTH,
    text: request.text,
    textPair: request.textPair,
    texts: [request.text, request.textPair],
    pictureUrl: request.image ? fixedPicture.url : '',
    picture: request.image ? fixedPicture : null,
    image: request.image ?? '',
    generate: request.generate ?? null,
    generated: writtenIn(request),
    maxTokens: request.maxTokens ?? null,
    mask: request.mask ?? [],
    tokens: queries,
    keyTokens: keys,
    maps: Object.fromEntries(request.lenses.map((lens) => [lens.name, info(lens)])),
    warnings: n <= HEAD_WIDTH ? [{ code: 'identical-to-weights', lens: 'effective', message }] : [],
    totalMs: 41,
  }
}

export const perHead = <T>(value: (head: Head) => T): T[][] =>
  Array.from({ length: LAYERS }, (_, layer) => Array.from({ length: HEADS }, (_, head) => value({ layer, head })))

const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

function valuesOf(measure: string, map: Matrix, head: Head): number[] {
  if (measure === 'leverage') return leverageOf(map.cols, HEAD_WIDTH, head.layer * 31 + head.head)
  if (measure === 'null_share')
    return [Math.max(0, 1 - HEAD_WIDTH / map.cols) * (0.6 + 0.4 * Math.sin(head.head + head.layer))]
  return Array.from({ length: map.rows }, (_, q) =>
    map.data.subarray(q * map.cols, (q + 1) * map.cols).reduce((sum, p) => (p > 0 ? sum - p * Math.log(p) : sum), 0),
  )
}

/** The first rows of a map. */
const cut = (map: Matrix, rows: number): Matrix => ({ ...map, data: map.data.slice(0, rows * map.cols), rows })

/** Head 3 has no reading at all; every other one lacks it in some rows. */
const gapsOf = (rows: number, head: number) => (head === 3 ? rows : Math.ceil(rows / 7))
const withGaps = (map: Matrix, { head }: Head): Matrix => ({
  ...map,
  data: map.data.map((value, i) => (head === 3 || Math.floor(i / map.cols) % 7 === 0 ? Number.NaN : value)),
})

function tilesOf(unsigned: boolean, heads: number, mapOf: (head: Head) => Matrix): Tiles {
  const maps = perHead(mapOf).flatMap((row) => row.slice(0, heads))
  const [rows, cols] = [Math.min(32, maps[0].rows), Math.min(32, maps[0].cols)]
  const bytes = new Uint8Array(maps.length * rows * cols)
  const scale = new Float32Array(maps.length)
  const offset = new Float32Array(maps.length)
  maps.forEach((map, i) => {
    scale[i] = maxMagnitude(map.data) / (unsigned ? 255 : 127)
    offset[i] = unsigned ? 0 : -128 * scale[i]
    bytes.set(pool(map, rows, cols, scale[i], offset[i]), i * rows * cols)
  })
  return { bytes, scale, offset, layers: LAYERS, heads, rows, cols }
}

function pool(map: Matrix, rows: number, cols: number, scale: number, offset: number): Uint8Array {
  const strongest = new Float32Array(rows * cols)
  for (let q = 0; q < map.rows; q++) {
    for (let k = 0; k < map.cols; k++) {
      const cell = Math.floor((q * rows) / map.rows) * cols + Math.floor((k * cols) / map.cols)
      const value = map.data[q * map.cols + k]
      if (Math.abs(value) > Math.abs(strongest[cell])) strongest[cell] = value
    }
  }
  return Uint8Array.from(strongest, (value) => Math.round((value - offset) / (scale || 1)))
}
