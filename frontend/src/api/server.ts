/** The Source of the REST interface. */
import type { Declaration, Head, Method, Model, Request } from '../lib/data/analysis'
import { isMapsName, parseMapsName } from '../lib/data/effects'
import { type Source, SourceError } from '../lib/data/source'
import type { Axis } from '../lib/maths/axis'
import type { Matrix, Tiles } from '../lib/maths/matrix'
import { readSafetensors, tensor } from '../lib/net/safetensors'
import { accounts } from './accounts'
import { batteries } from './batteries'
import { comparisons } from './compare'
import { effects } from './effects'
import { watchEvents } from './events'
import { figures, listFigures } from './figures'
import { call, getBytes, getJson, PREFIX, path } from './http'
import { library } from './library'
import { withOriginalIndices } from './original-indices'
import { everyItem, type Page } from './pages'
import { headQueries } from './search'
import { shares } from './shares'
import { studies } from './studies'
import { readTiles } from './tiles'
import {
  readAnalysis,
  readDeclaration,
  readHistoryItem,
  readModel,
  readRun,
  readSupport,
  type WireAnalysis,
  type WireDeclaration,
  type WireHistoryItem,
  type WireModel,
  type WireRequest,
  type WireSupport,
  type WireValues,
} from './wire'

/** Places of several tokens, which follow one another, as the parameter `groups`; others are groups without being named. */
function groupsOf({ start, labels }: Axis): string {
  const spans = labels.map((_, place) => [start[place], start[place + 1] - 1])
  return spans.flatMap(([first, last]) => (first < last ? `${first}-${last}` : [])).join('|') || '0'
}

const single = ({ layer, head }: Head) => ({ layer, head })

/** The server as its user sees it, or with a share key, as the holder of that key does. */
export function server(key = ''): Source {
  const at = (parts: string[], query: Record<string, string | number> = {}) =>
    path(parts, key ? { ...query, share: key } : query)
  const of = (id: string, parts: string[] = [], query = {}) => at(['analyses', id, ...parts], query)
  const read = (wire: WireAnalysis) => readAnalysis(wire, PREFIX + of(wire.id, ['image']))

  /** Where maps are read: those of a lens, or of an effect. */
  function mapsOf(id: string, lens: string, query: Record<string, string | number>): string {
    const found = parseMapsName(lens)
    return found ? of(found.analysis, ['effects', found.effect, 'maps'], query) : of(id, ['maps', lens], query)
  }

  async function models(): Promise<Model[]> {
    try {
      return (await everyItem<WireModel>((query) => path(['models'], query))).map(readModel)
    } catch (error) {
      // A key opens one analysis and not the list of models; the analysis names its own.
      if (key && error instanceof SourceError && error.status === 401) return []
      throw error
    }
  }

  async function declarations(name: string): Promise<Declaration[]> {
    return (await everyItem<WireDeclaration>((query) => at([name], query))).map(readDeclaration)
  }

  return withOriginalIndices({
    accounts: accounts(at(['session'])),
    shares: shares('analyses'),
    headQueries: headQueries(of),

    comparisons: comparisons(of),
    figures: figures(() => listFigures((query) => at(['figures'], query), 'analysis'), of),
    studies: studies(at),
    // A share key reads, and asks for nothing new.
    ...(key ? {} : { library, batteries, effects: effects(of) }),

    async catalogue() {
      const [known, lenses, mechanisms, measures, effects] = await Promise.all([
        models(),
        declarations('lenses'),
        declarations('mechanisms'),
        declarations('measures'),
        // A share key asks for nothing new.
        key ? [] : declarations('effects'),
      ])
      return { models: known, lenses, mechanisms, measures, effects }
    },

    async support(model) {
      return readSupport(await getJson<WireSupport>(path(['models', ...model.split('/')])))
    },

    async submit(request, signal) {
      // Not awaited on the server: that would save some 10 ms, but cancelling needs the id.
      const response = await call('/analyses', {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json' },
        body: JSON.stringify(requestBody(request)),
        signal,
      })
      // The server answers 202 also for one that it has computed in the meantime.
      return { ...read((await response.json()) as WireAnalysis), stored: response.status === 200 }
    },

    watch: (id, report, signal) =>
      watchEvents({ itself: of(id), events: of(id, ['events']) }, { read: readRun, report }, signal),

    async cancel(id) {
      await call(path(['analyses', id]), { method: 'DELETE' })
    },

    async recent(from) {
      const { items, next } = await getJson<Page<WireHistoryItem>>(path(['analyses'], from ? { cursor: from } : {}))
      return { items: items.filter(({ status }) => status === 'done').map(readHistoryItem), next: next ?? null }
    },

    async analysis(id, signal) {
      return read(await getJson<WireAnalysis>(of(id), signal))
    },

    async grid(id, lens, { without, side, tokens }, signal): Promise<Tiles> {
      if (isMapsName(lens)) {
        const query = { pool: Math.ceil(tokens / side), dtype: 'uint8' }
        return readTiles(readSafetensors(await getBytes(mapsOf(id, lens, query), signal)), 'map')
      }
      const query = without ? { tile: side, without: 'both' } : { tile: side }
      return readTiles(readSafetensors(await getBytes(of(id, ['grid', lens], query), signal)))
    },

    map: (id, lens, head, signal) => readMap(mapsOf(id, lens, single(head)), signal),

    async mapPart(id, lens, head, { pool, queries, keys }, signal) {
      const query = { ...single(head), query: queries.join(':'), key: keys.join(':'), pool }
      const map = await readMap(mapsOf(id, lens, query), signal)
      return pool === 1 ? map : { ...map, exact: false, pool }
    },

    mapFolded(id, lens, head, [queries, keys], signal) {
      const groups = { groups: groupsOf(queries), ...(queries === keys ? {} : { key_groups: groupsOf(keys) }) }
      return readMap(mapsOf(id, lens, { ...single(head), ...groups }), signal)
    },

    async sums(id, lens, head, signal) {
      const found = readSafetensors(await getBytes(of(id, ['sums', lens], single(head)), signal))
      const [queries, keys] = ['queries', 'keys'].map((side) => Float32Array.from(tensor(found, side).data))
      return { queries, keys }
    },

    async overview(id, name, lens, signal) {
      const [measure, column] = name.split('.')
      const query = { lens, summary: 'head', format: 'json' }
      const { values, columns } = await getJson<WireValues>(of(id, ['measures', measure], query), signal)
      if (column === undefined) return values as (number | null)[][]
      const at = columns.indexOf(column)
      return (values as (number | null)[][][]).map((layer) => layer.map((head) => head[at]))
    },

    async measure(id, measure, lens, head, signal) {
      const query = { lens, ...single(head), format: 'json' }
      const { values } = await getJson<WireValues>(of(id, ['measures', measure], query), signal)
      return (values as unknown[]).flat(3) as (number | null)[]
    },

    exportUrl: (id, format) => PREFIX + of(id, ['export'], { format }),

    async exportPage(id, heads, view) {
      const query = { format: 'html', ...(heads.length > 0 ? { heads: heads.join() } : {}), ...(view ? { view } : {}) }
      return (await call(of(id, ['export'], query))).blob()
    },
  })
}

async function readMap(address: string, signal: AbortSignal): Promise<Matrix> {
  const { data, shape } = tensor(readSafetensors(await getBytes(address, signal)), 'map')
  if (!(data instanceof Float32Array)) throw new Error('maps: expected float32')
  return { data, rows: shape[2], cols: shape[3], exact: true }
}

function requestBody(request: Request): Partial<WireRequest> {
  const { model, kind, mechanism, lenses, measures, maps } = request
  const chosen = ({ name, params }: Method) => ({ ...params, name })
  return {
    model,
    ...inputOf(request),
    ...(kind ? { kind: kind as WireRequest['kind'] } : {}),
    mechanism: chosen(mechanism) as NonNullable<WireRequest['mechanism']>,
    lenses: lenses.map(chosen) as WireRequest['lenses'],
    measures: measures as WireRequest['measures'],
    ...(maps === false ? { maps } : {}),
  }
}

/** The input of a request: an image, a conversation, token ids, a text, or an image and a text. */
function inputOf({
  text,
  textPair,
  messages,
  ids,
  targetIds,
  image,
  generate,
  maxTokens,
  mask,
}: Request): Partial<WireRequest> {
  const written = {
    ...(generate ? { generate: generate as NonNullable<WireRequest['generate']> } : {}),
    ...(maxTokens ? { max_tokens: maxTokens } : {}),
    ...(mask ? { mask: [...mask] } : {}),
  }
  if (image) return { image, ...(text ? { text, ...written } : {}) }
  if (messages) return { messages: [...messages], ...written }
  if (ids) return { token_ids: [...ids], ...(targetIds ? { target_ids: [...targetIds] } : {}), ...written }
  return { text, ...(textPair ? { text_pair: textPair } : {}), ...written }
}
