/** The Source behind the REST interface. */
import type { Declaration, Head, Method, Request } from '../lib/analysis'
import type { Matrix, Tiles } from '../lib/matrix'
import { readSafetensors, tensor } from '../lib/safetensors'
import type { Source } from '../lib/source'
import { watchEvents } from './events'
import { call, getBytes, getJson, PREFIX, path } from './http'
import {
  readAnalysis,
  readDeclaration,
  readModel,
  readSupport,
  type WireAnalysis,
  type WireDeclaration,
  type WireModel,
  type WireRequest,
  type WireSupport,
  type WireValues,
} from './wire'

interface Page<T> {
  items: T[]
}

async function declarations(name: string): Promise<Declaration[]> {
  return (await getJson<Page<WireDeclaration>>(`/${name}`)).items.map(readDeclaration)
}

const single = ({ layer, head }: Head) => ({ layer, head })

export const server: Source = {
  async catalogue() {
    const [models, lenses, mechanisms, measures] = await Promise.all([
      getJson<Page<WireModel>>('/models'),
      declarations('lenses'),
      declarations('mechanisms'),
      declarations('measures'),
    ])
    return { models: models.items.map(readModel), lenses, mechanisms, measures }
  },

  async support(model) {
    return readSupport(await getJson<WireSupport>(`/models/${model.split('/').map(encodeURIComponent).join('/')}`))
  },

  async submit(request, signal) {
    // Answered at once, with the id that cancelling needs; waiting here would save some 10 ms and cost that.
    const response = await call('/analyses', {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json' },
      body: JSON.stringify(requestBody(request)),
      signal,
    })
    return readAnalysis((await response.json()) as WireAnalysis)
  },

  watch: watchEvents,

  async cancel(id) {
    await call(path(['analyses', id]), { method: 'DELETE' })
  },

  async analysis(id, signal) {
    return readAnalysis(await getJson<WireAnalysis>(path(['analyses', id]), signal))
  },

  async grid(id, lens): Promise<Tiles> {
    const tensors = readSafetensors(await getBytes(path(['analyses', id, 'grid', lens], { tile: 32 })))
    const tiles = tensor(tensors, 'tiles')
    const [layers, heads, rows, cols] = tiles.shape
    const [scale, offset] = ['scale', 'offset'].map((name) => Float32Array.from(tensor(tensors, name).data))
    return { bytes: Uint8Array.from(tiles.data), scale, offset, layers, heads, rows, cols }
  },

  async map(id, lens, head): Promise<Matrix> {
    const query = { ...single(head), dtype: 'float32' }
    const { data, shape } = tensor(readSafetensors(await getBytes(path(['analyses', id, 'maps', lens], query))), 'map')
    if (!(data instanceof Float32Array)) throw new Error('maps: expected float32')
    return { data, rows: shape[2], cols: shape[3], exact: true }
  },

  async overview(id, measure, lens) {
    const query = { lens, summary: 'head', format: 'json' }
    const { values } = await getJson<WireValues>(path(['analyses', id, 'measures', measure], query))
    return values as (number | null)[][]
  },

  async measure(id, measure, lens, head) {
    const query = { lens, ...single(head), format: 'json' }
    const { values } = await getJson<WireValues>(path(['analyses', id, 'measures', measure], query))
    return (values as unknown[]).flat(3) as (number | null)[]
  },

  exportUrl: (id, format) => PREFIX + path(['analyses', id, 'export'], { format }),
}

function requestBody(request: Request): Partial<WireRequest> {
  const { model, text, textPair, kind, mechanism, lenses, measures } = request
  const more = { ...(textPair ? { text_pair: textPair } : {}), ...(kind ? { kind: kind as WireRequest['kind'] } : {}) }
  const chosen = ({ name, params }: Method) => ({ ...params, name })
  return {
    model,
    text,
    ...more,
    mechanism: chosen(mechanism) as WireRequest['mechanism'],
    lenses: lenses.map(chosen) as WireRequest['lenses'],
    measures: measures as WireRequest['measures'],
  }
}
