/** Studies and data sets over REST. */
import type { Method } from '../lib/data/analysis'
import type {
  BadRow,
  Dataset,
  DatasetItem,
  ModelMechanism,
  ParseOptions,
  Report,
  Row,
  SampleRow,
  Studies,
  Study,
  StudyHead,
  StudyItem,
  StudyProgress,
  StudyRequest,
  StudyRun,
  Variant,
} from '../lib/data/studies'
import { studyProblemSentence } from '../lib/net/problem'
import { watchEvents } from './events'
import { figures, listFigures } from './figures'
import { call, getJson, PREFIX, send } from './http'
import { everyItem, type Page, type Query } from './pages'
import type { components } from './schema'
import { shares } from './shares'

type Schemas = components['schemas']
type WireStudy = Schemas['StudyDocument']
type WireRun = Pick<WireStudy, 'id' | 'status' | 'progress' | 'error'>

const readProgress = ({ seconds_left: secondsLeft, ...rest }: Schemas['StudyProgress']): StudyProgress => ({
  ...rest,
  secondsLeft,
})

const readStudyRun = ({ id, status, progress, error }: WireRun): StudyRun => ({
  id,
  status,
  progress: readProgress(progress),
  error,
})

const readMechanism = ({ model, mechanism: { name, ...params } }: Schemas['ModelMechanism']): ModelMechanism => ({
  model,
  mechanism: { name, params },
})

const readVariant = (wire: Schemas['VariantSchema']): Variant => ({
  ...readMechanism(wire),
  layers: wire.layers,
  heads: wire.heads,
})

const readReport = (wire: Schemas['StudyData']): Report => ({
  id: wire.id ?? null,
  name: wire.name,
  format: wire.format,
  encoding: wire.encoding,
  columns: wire.columns,
  chosen: wire.chosen,
  guessed: wire.guessed,
  reasons: wire.reasons,
  rows: wire.rows,
  bad: wire.bad_rows,
  badCount: wire.bad_count,
})

const readRow = ({ row, text, text_pair: textPair, label }: Schemas['Example']): Row => ({
  row,
  text,
  textPair: textPair ?? '',
  label: label ?? '',
})

const readFailed = ({ row, detail }: Schemas['FailedInput']): BadRow => ({ row, problem: detail })

const readItem = (wire: Schemas['StudyItem']): StudyItem => ({
  id: wire.id,
  status: wire.status,
  progress: readProgress(wire.progress),
  error: null,
  dataset: wire.dataset,
  variants: wire.variants.map(readMechanism),
  when: 1000 * wire.created,
})

const readStudy = (wire: WireStudy): Study => ({
  ...readStudyRun(wire),
  request: wire.request,
  dataset: readReport(wire.dataset),
  variants: wire.variants.map(readVariant),
  lenses: wire.lenses,
  measures: wire.measures,
  inputs: wire.inputs,
  tokens: wire.tokens,
  cut: wire.cut,
  failed: wire.failed.map(readFailed),
  failedCount: wire.failed_count,
  unaligned: wire.unaligned,
  notCompared: wire.not_compared ?? '',
  figures: wire.figures,
  tables: wire.tables,
  timing: wire.timing_ms,
})

const readHead = ({ numbers, ...head }: Schemas['StudyHead']): StudyHead => ({
  ...head,
  numbers: numbers.map(({ input_mean: inputMean, median_within: medianWithin, top, ...number }) => ({
    ...number,
    inputMean,
    medianWithin,
    top: top.map(({ value, ...row }) => ({ ...readRow(row), value })),
  })),
})

const chosen = (method: Method | null) => method && { ...method.params, name: method.name }

/** The body of a study request. */
export const requestBody = (asked: StudyRequest) => ({
  dataset: asked.dataset,
  model: asked.model,
  mechanism: chosen(asked.mechanism),
  ...(asked.against ? { against: { model: asked.against.model, mechanism: chosen(asked.against.mechanism) } } : {}),
  lenses: asked.lenses,
  measures: asked.measures,
  ...(asked.effects.length > 0 ? { effects: asked.effects } : {}),
  ...(asked.target.length > 0 ? { target: asked.target } : {}),
  ...(asked.position === null ? {} : { position: asked.position }),
  ...(asked.reference.length > 0 ? { reference: asked.reference } : {}),
  figures: asked.figures,
  ...(Object.keys(asked.reading.columns).length > 0 ? { columns: asked.reading.columns } : {}),
  ...(asked.limit === null ? {} : { limit: asked.limit, seed: asked.seed }),
  ...(asked.maxTokens === null ? {} : { max_tokens: asked.maxTokens }),
  bad_rows: asked.badRows,
})

type WireDataset = Schemas['DatasetDocument']

const readSampleRow = ({ target, minus, against, ...rest }: WireDataset['sample'][number]): SampleRow => ({
  ...readRow(rest),
  target: String(target ?? ''),
  minus: String(minus ?? ''),
  against: against ?? '',
})

const readDataset = (wire: WireDataset): Dataset => ({
  ...readReport(wire),
  id: wire.id,
  bytes: wire.bytes,
  sample: wire.sample.map(readSampleRow),
})

const readAs = ({ format, columns }: ParseOptions): Query => ({
  ...(format === '' ? {} : { format }),
  ...(Object.keys(columns).length === 0 ? {} : { columns: JSON.stringify(columns) }),
})

/** `at` builds a URL of the REST interface. */
export function studies(at: (parts: string[], query?: Query) => string): Studies {
  const of = (id: string, parts: string[] = [], query: Query = {}) => at(['studies', id, ...parts], query)
  const get = <T>(place: string, signal?: AbortSignal) => getJson<T>(place, signal, studyProblemSentence)
  const ask = (place: string, init: RequestInit) => call(place, init, studyProblemSentence)

  async function start(body: unknown): Promise<Study> {
    const headers = { 'content-type': 'application/json', accept: 'application/json' }
    const answer = await ask(at(['studies']), { method: 'POST', headers, body: JSON.stringify(body) })
    return readStudy((await answer.json()) as WireStudy)
  }

  return {
    ...shares('studies'),
    async datasets() {
      const all = await everyItem<DatasetItem>((query) => at(['datasets'], query), studyProblemSentence)
      // Jacobian lenses are uploaded in the same way.
      return all.filter(({ name }) => !name.toLowerCase().endsWith('.safetensors'))
    },
    async dataset(id, reading, signal) {
      return readDataset(await get<WireDataset>(at(['datasets', id], readAs(reading)), signal))
    },
    async upload(file, signal, report) {
      const answer = await send(at(['datasets'], { name: file.name }), { file, signal, report }, studyProblemSentence)
      return readDataset((await answer.json()) as WireDataset)
    },
    async list(limit, from) {
      const query = { limit, ...(from === undefined ? {} : { cursor: from }) }
      const { items, next } = await get<Page<Schemas['StudyItem']>>(at(['studies'], query))
      return { items: items.map(readItem), next: next ?? null }
    },
    start: (request) => start(requestBody(request)),
    again: ({ request }) => start(request),
    study: async (id, signal) => readStudy(await get<WireStudy>(of(id), signal)),
    watch: (id, report, signal) =>
      watchEvents({ itself: of(id), events: of(id, ['events']) }, { read: readStudyRun, report }, signal),
    async remove(id) {
      await ask(of(id), { method: 'DELETE' })
    },
    figures: figures(() => listFigures((query) => at(['figures'], query), 'study'), of),
    table: async (id, name, params, format) => (await ask(of(id, ['tables', name], { ...params, format }), {})).blob(),
    async heads(id, where, lens, variant) {
      const { ranked_by: rankedBy, ...found } = await get<Schemas['FoundHeads']>(
        of(id, ['heads'], { where, lens, variant }),
      )
      return { ...found, rankedBy }
    },
    async head(id, { layer, head }, lens, variant) {
      return readHead(await get<Schemas['StudyHead']>(of(id, ['heads', `${layer}`, `${head}`], { lens, variant })))
    },
    exportUrl: (id, format, variant) => PREFIX + of(id, ['export'], { format, variant }),
  }
}
