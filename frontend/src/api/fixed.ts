/** A Source of fixed data, made from a seed: the gallery and the tests look at it, no server needed. */
import type { Analysis, Declaration, Head, Model, Request, Run, Token } from '../lib/analysis'
import { type Matrix, maxMagnitude, type Tiles } from '../lib/matrix'
import { type Source, SourceError } from '../lib/source'
import { effectiveMap, leverageOf, weightsMap } from './fixed-maps'

const LAYERS = 6
const HEADS = 12
const HEAD_WIDTH = 32
const SENTENCE = 'The boats lay by the river bank while the bank in town kept the money they had earned.'
const WORDS = `${SENTENCE} It was late in the year and nobody asked where the water went.`.split(' ')

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
  layers: LAYERS,
  heads: HEADS,
  headWidth: HEAD_WIDTH,
  maxTokens: 512,
  available: true,
  local: true,
  isDefault: false,
  reason: null,
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
  ...over,
})

const MAP_AXES = ['L', 'H', 'Q', 'K']
export const fixedCatalogue = {
  models: [
    model('minilm', 'MiniLM', { isDefault: true }),
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
  ],
  mechanisms: [declaration('softmax', 'Softmax', { doc: 'Attention as trained.' })],
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
    declaration('leverage', 'Leverage', {
      axes: ['L', 'H', 'K'],
      range: [0, 1],
      doc: 'How much of the weight on a token survives in place.',
    }),
  ],
}

/** Every request is answered at once unless `delayMs` asks for a run to look at. */
export function fixedSource(delayMs = 0): Source {
  const requests = new Map<string, Request>()
  const tokensOf = (id: string) => fixedTokens(requests.get(id)!.text)
  const mapOf = (id: string, lens: string, head: Head): Matrix => {
    const weights = weightsMap(tokensOf(id), head)
    return lens === 'weights' ? weights : effectiveMap(weights, HEAD_WIDTH, head.layer * 31 + head.head)
  }
  return {
    catalogue: async () => fixedCatalogue,
    async submit(request) {
      if (request.text.trim() === '') throw new SourceError('The text is empty. Type a sentence.', 'empty-text', 422)
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
    analysis: async (id) => analysisOf(id, requests.get(id)!, tokensOf(id)),
    grid: async (id, lens) => tilesOf(lens === 'weights', (head) => mapOf(id, lens, head)),
    map: async (id, lens, head) => mapOf(id, lens, head),
    overview: async (id, measure) => perHead((head) => mean(valuesOf(measure, mapOf(id, 'weights', head), head))),
    measure: async (id, measure, _lens, head) => valuesOf(measure, mapOf(id, 'weights', head), head),
    exportUrl: () => null,
  }
}

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
  const info = (signed: boolean) => ({ shape: [LAYERS, HEADS, n, n], signed, identical: signed ? identical : null })
  const message = `Identical to the weights: ${n} tokens fit into the head’s ${HEAD_WIDTH} dimensions.`
  return {
    ...run(id, 'done', 1),
    model: request.model,
    mechanism: request.mechanism,
    lenses: request.lenses,
    measures: request.measures,
    layers: LAYERS,
    heads: HEADS,
    headWidth: HEAD_WIDTH,
    text: request.text,
    textPair: request.textPair,
    tokens,
    maps: { weights: info(false), effective: info(true) },
    warnings: n <= HEAD_WIDTH ? [{ code: 'identical-to-weights', lens: 'effective', message }] : [],
    totalMs: 41,
  }
}

const perHead = <T>(value: (head: Head) => T): T[][] =>
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

function tilesOf(unsigned: boolean, mapOf: (head: Head) => Matrix): Tiles {
  const maps = perHead(mapOf).flat()
  const size = Math.min(32, maps[0].rows)
  const bytes = new Uint8Array(maps.length * size * size)
  const scale = new Float32Array(maps.length)
  const offset = new Float32Array(maps.length)
  maps.forEach((map, i) => {
    scale[i] = maxMagnitude(map.data) / (unsigned ? 255 : 127)
    offset[i] = unsigned ? 0 : -128 * scale[i]
    bytes.set(pool(map, size, scale[i], offset[i]), i * size * size)
  })
  return { bytes, scale, offset, layers: LAYERS, heads: HEADS, size }
}

function pool(map: Matrix, size: number, scale: number, offset: number): Uint8Array {
  const strongest = new Float32Array(size * size)
  for (let q = 0; q < map.rows; q++) {
    for (let k = 0; k < map.cols; k++) {
      const cell = Math.floor((q * size) / map.rows) * size + Math.floor((k * size) / map.cols)
      const value = map.data[q * map.cols + k]
      if (Math.abs(value) > Math.abs(strongest[cell])) strongest[cell] = value
    }
  }
  return Uint8Array.from(strongest, (value) => Math.round((value - offset) / (scale || 1)))
}
