/** Seeded studies for the gallery. */
import type { Head } from '../src/lib/data/analysis'
import { SourceError } from '../src/lib/data/source'
import type {
  Dataset,
  Row,
  Studies,
  Study,
  StudyHead,
  StudyItem,
  StudyNumber,
  StudyProgress,
  StudyRun,
  Variant,
} from '../src/lib/data/studies'
import { fixedFigures } from './figures'
import { CLASSES, fixedHeadQueries } from './search'

const LAYERS = 6
const HEADS = 12
/** Monday, the 5th of January 2026, noon. */
const NOON = Date.UTC(2026, 0, 5, 12)

const TEXTS = [
  'it is a quietly moving film about a town that forgets how to speak to itself .',
  'the jokes arrive late , and most of them have been seen leaving the station before .',
  'what the camera finds in these faces is worth more than anything the script has to say .',
  'two hours of weather .',
  'a small story , told without haste and without a wrong note .',
]
const row = (number: number): Row => ({
  row: number,
  text: TEXTS[number % TEXTS.length],
  textPair: '',
  label: number % 2 === 0 ? 'positive' : 'negative',
})

const DATASET: Dataset = {
  id: 'c0ffee',
  name: 'reviews/dev.tsv',
  bytes: 93_228,
  format: 'tsv',
  encoding: 'utf-8',
  columns: ['sentence', 'label', 'source'],
  chosen: { text: 'sentence', label: 'label' },
  guessed: true,
  reasons: { text: 'It is called sentence.', label: 'It is called label.' },
  rows: 869,
  bad: [
    { row: 17, problem: 'The row has 4 cells where the header has 3.' },
    { row: 203, problem: 'The text is empty.' },
    { row: 640, problem: 'The line is not UTF-8: byte 0xE9 at column 14.' },
  ],
  badCount: 3,
  sample: [2, 3, 4, 5, 6].map((number) => ({ ...row(number), target: '', minus: '', against: '' })),
}

const places = (count: number) => Array.from({ length: count }, (_, i) => i)
const variant = (name: string, params: Variant['mechanism']['params'] = {}): Variant => ({
  model: 'minilm',
  mechanism: { name, params },
  layers: places(LAYERS),
  heads: places(HEADS),
})

const progress = (fraction: number): StudyProgress => ({
  fraction,
  stage: fraction === 1 ? 'done' : 'forward',
  detail: '',
  position: null,
  inputs: Math.round(fraction * DATASET.rows),
  of: DATASET.rows,
  secondsLeft: fraction === 1 ? null : 41,
})

const RUNS: Record<string, Partial<Study>> = {
  running: { status: 'running', progress: progress(0.36) },
  failed: {
    status: 'failed',
    progress: progress(0.71),
    error: {
      title: 'Out of memory',
      detail: 'A chunk of inputs of 512 tokens needs more memory than there is. Give max_tokens, or a smaller model.',
      code: 'out-of-memory',
      status: 507,
    },
  },
  two: { variants: [variant('hopfield')] },
}

const DONE: Study = {
  id: 'one',
  status: 'done',
  progress: progress(1),
  error: null,
  request: {},
  dataset: DATASET,
  variants: [variant('softmax'), variant('jump', { order: 2 })],
  lenses: ['weights', 'effective'],
  measures: ['entropy', 'null_share', 'patterns'],
  inputs: 867,
  tokens: 21_304,
  cut: 1,
  failed: [
    { row: 88, problem: 'The text has no tokens.' },
    { row: 512, problem: 'The text has 611 tokens and this model takes 512.' },
  ],
  failedCount: 2,
  figures: ['entropy', 'patterns', 'rank'],
  tables: ['heads', 'inputs', 'failed'],
  unaligned: 0,
  notCompared: '',
  timing: [
    { forward: 21_400, lenses: 11_900, total: 33_300 },
    { forward: 20_900, lenses: 12_300, total: 33_200 },
  ],
}

const study = (id: string): Study => ({ ...DONE, id, ...RUNS[id] })
const item = ({ id, status, progress: far, error, dataset, variants }: Study): StudyItem => ({
  id,
  status,
  progress: far,
  error,
  dataset: dataset.name,
  variants,
  when: NOON,
})

const shareOf = ({ layer, head }: Head, id: string) =>
  0.5 + 0.4 * Math.sin(head + layer + (id === 'two' ? 0.3 * layer : 0))

const EDGES = places(41).map((bin) => bin / 40)
const bell = (middle: number) => EDGES.slice(1).map((edge) => Math.round(900 * Math.exp(-(((edge - middle) * 8) ** 2))))

function numberOf(measure: string, unit: string, scale: number, head: Head, id: string): StudyNumber {
  const mean = shareOf(head, id)
  return {
    measure,
    column: null,
    unit,
    count: 21_304,
    mean: scale * mean,
    std: 0.1 * scale,
    low: 0,
    high: scale,
    medianWithin: [scale * mean, scale * mean],
    inputs: 867,
    inputMean: scale * mean,
    interval: [scale * (mean - 0.02), scale * (mean + 0.02)],
    distribution: { edges: EDGES.map((edge) => scale * edge), counts: bell(mean) },
    top: [3, 12, 44].map((number, at) => ({ ...row(number), value: scale * Math.min(1, mean + 0.3 - 0.1 * at) })),
  }
}

const headOf = (id: string, head: Head, lens: string, of: number): StudyHead => ({
  ...head,
  lens,
  variant: of,
  numbers: [numberOf('entropy', 'nats', 4, head, id), numberOf('null_share', '1', 1, head, id)],
  classes: CLASSES.slice(0, 3).map((name, at) => {
    const share = [0.62, 0.3, 0.08][at]
    return { measure: 'patterns', name, count: Math.round(867 * share), share }
  }),
  neighbours: [1, 2, 3, 4].map((step) => ({
    layer: (head.layer + step) % LAYERS,
    head: (head.head + 5 * step) % HEADS,
    cosine: 1 - step / 20,
  })),
})

const TABLE = `row,text,label\n${[2, 3, 4, 5, 6]
  .map(row)
  .map(({ row: number, text, label }) => `${number},"${text}",${label}`)
  .join('\n')}\n`

export function fixedStudies(which: 'some' | 'none'): Studies {
  const all = which === 'none' ? [] : ['running', 'one', 'two', 'failed'].map(study)
  const found = (id: string) => {
    const there = all.find((one) => one.id === id)
    if (!there) throw new SourceError('There is no study of that name here.', 'unknown-study', 404)
    return there
  }
  const { heads } = fixedHeadQueries(HEADS, LAYERS)
  return {
    datasets: async () =>
      which === 'none' ? [] : [DATASET, { id: 'papers/qnli.tsv', name: 'papers/qnli.tsv', bytes: 1_393_512 }],
    dataset: async (_id, { columns, format }) => ({
      ...DATASET,
      chosen: { ...DATASET.chosen, ...columns },
      format: format || DATASET.format,
    }),
    upload: async ({ name }) => ({ ...DATASET, name }),
    list: async () => ({ items: all.map(item), next: null }),
    start: async () => study('running'),
    again: async ({ id }) => found(id),
    study: async (id) => found(id),
    watch: (_id: string, _report: (run: StudyRun) => void, signal) =>
      new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true })),
    remove: async () => {},
    share: async () => 'f'.repeat(32),
    unshare: async () => {},
    figures: fixedFigures,
    table: async () => new Blob([TABLE], { type: 'text/csv' }),
    async heads(id, where, _lens, _variant) {
      const { heads: listed, ...rest } = await heads(id, where, 'weights')
      const ranked = / order by (\w+) (asc|desc)$/.exec(` ${where}`)
      const [, name = 'entropy', direction = 'desc'] = ranked ?? []
      const scale = name === 'entropy' ? 4 : 1
      const valued = listed.map((head) => ({ ...head, values: { [name]: scale * shareOf(head, id) } }))
      const sign = direction === 'asc' ? 1 : -1
      valued.sort((a, b) => sign * (a.values[name] - b.values[name]))
      return { ...rest, heads: valued, rankedBy: name, direction: direction as 'asc' | 'desc' }
    },
    head: async (id, head, lens, of) => headOf(id, head, lens, of),
    exportUrl: () => null,
  }
}
