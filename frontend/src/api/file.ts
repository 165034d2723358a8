/** The Source of one analysis that was exported as a page, which contains the responses of the REST interface. */
import { type Declaration, type Head, headName } from '../lib/data/analysis'
import { type Source, SourceError } from '../lib/data/source'
import { membersOf } from '../lib/maths/axis'
import { overviewPool, type Part, partName } from '../lib/maths/details'
import { type Factors, noMap, wholeMap } from '../lib/maths/factors'
import type { Matrix, Tiles } from '../lib/maths/matrix'
import { dequantise, rounding, sumError } from '../lib/maths/matrix'
import { type Computed, computeFolded, computePart } from '../lib/maths/tiles'
import { Cache } from '../lib/net/cache'
import { readSafetensors, type Tensor, tensor } from '../lib/net/safetensors'
import { type Kept, readFactors } from './factors'
import { withOriginalIndices } from './original-indices'
import { readTiles } from './tiles'
import {
  readAnalysis,
  readDeclaration,
  readModel,
  type WireAnalysis,
  type WireDeclaration,
  type WireModel,
} from './wire'

/** The bytes of a response by its path, or undefined if the page does not contain it. */
export type Responses = (path: string) => Promise<ArrayBuffer | undefined>

const ALONE = 'This file holds one analysis and no model. Open Headscope to analyse another text or use another lens.'

type Numbers = (number | null)[]
const numbers = (data: ArrayLike<number>): Numbers =>
  Array.from(data, (value) => (Number.isFinite(value) ? value : null))

function mean(values: Numbers): number | null {
  const known = values.filter((value) => value !== null)
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length
}

/** The slice of a tensor at an index of its first axes. */
function cut({ data, shape }: Tensor, ...places: number[]): Tensor['data'] {
  const rest = shape.slice(places.length).reduce((product, size) => product * size, 1)
  const start = places.reduce((at, place, axis) => at * shape[axis] + place, 0) * rest
  return data.subarray(start, start + rest)
}

/** The map of one head from the tensor of its layer, with the rounding error that the interface states. */
export function readMap(tensors: Map<string, Tensor>, head: number): Matrix {
  const map = tensor(tensors, 'map')
  const [rows, cols] = map.shape.slice(2)
  const cells = cut(map, 0, head)
  if (cells instanceof Float32Array) {
    const data = cells.slice()
    return map.half ? { data, rows, cols, exact: true, error: halfError(data) } : { data, rows, cols, exact: true }
  }
  const [scale, offset, error] = ['scale', 'offset', 'max_error'].map((name) => tensor(tensors, name).data[head])
  const data = dequantise(cells, scale, offset)
  const undefinedRows = cut(tensor(tensors, 'undefined'), 0, head)
  for (let row = 0; row < rows; row++) if (undefinedRows[row]) data.fill(Number.NaN, row * cols, (row + 1) * cols)
  return { data, rows, cols, exact: true, error }
}

/** Half precision has eleven significant bits. */
const halfError = (data: Float32Array) =>
  data.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0) / 2 ** 11

const dataAddress = (png: ArrayBuffer) =>
  `data:image/png;base64,${btoa(Array.from(new Uint8Array(png), (byte) => String.fromCharCode(byte)).join(''))}`

const wholeOf = ({ queries, keys }: Factors, pool: number): Part => ({ pool, queries: [0, queries], keys: [0, keys] })

/** Heads that are kept in memory: those of a comparison, and the ones before. */
const HEADS = 4

export function fileSource(answers: Responses): Source {
  const heads = new Cache<Kept>(HEADS)
  const overviews = new Cache<Computed>(HEADS)
  async function bytes(path: string): Promise<ArrayBuffer> {
    const found = await answers(path)
    if (!found) throw new SourceError(ALONE, 'alone', 404)
    return found
  }
  const json = async <T>(path: string): Promise<T> => JSON.parse(new TextDecoder().decode(await bytes(path)))
  const items = async <T>(path: string) => (await json<{ items: T[] }>(path)).items
  const tensors = async (path: string) => readSafetensors(await bytes(path))
  const declarations = async (path: string): Promise<Declaration[]> =>
    (await items<WireDeclaration>(path)).map(readDeclaration)
  const alone = async () => {
    throw new SourceError(ALONE, 'alone', 405)
  }
  let read: Promise<WireAnalysis> | undefined
  const document = () => {
    read ??= json<WireAnalysis>('/analysis')
    return read
  }
  async function analysis() {
    const image = await answers('/image')
    return readAnalysis(await document(), image ? dataAddress(image) : '')
  }

  /** The position of a head in the arrays of the page. */
  async function place({ layer, head }: Head): Promise<Head> {
    const { layer_numbers, head_numbers } = await document()
    return { layer: layer_numbers.indexOf(layer), head: head_numbers.indexOf(head) }
  }

  /** The map of a head; undefined if the page has factors of its lens instead. */
  async function mapOf(lens: string, { layer, head }: Head): Promise<Matrix | undefined> {
    const found = await answers(`/maps/${lens}/${layer}`)
    if (!found) return undefined
    const read = readSafetensors(found)
    return readMap(read, tensor(read, 'map').shape[1] === 1 ? 0 : head)
  }

  const kept = (lens: string, at: Head): Promise<Kept> =>
    heads.get(`${lens} ${headName(at)}`, async () => {
      const whole = await mapOf(lens, at)
      if (whole) return { factors: wholeMap(whole.data, whole.cols), ...rounding(whole.error ?? 0) }
      const found = await answers(`/factors/${lens}/${headName(at)}`)
      if (found) return readFactors(found)
      const info: WireAnalysis['maps'][string] | undefined = (await document()).maps[lens]
      if (!info) throw new SourceError(ALONE, 'alone', 404)
      return { factors: noMap(info.shape[2], info.shape[3]) }
    })

  /** The overview of a map and its sums take one pass. */
  const overviewOf = (lens: string, at: Head, pool: number): Promise<Computed> =>
    overviews.get(`${lens} ${headName(at)} ${pool}`, async () => {
      const { factors } = await kept(lens, at)
      return computePart(factors, wholeOf(factors, pool))
    })

  return withOriginalIndices({
    async catalogue() {
      const [models, lenses, mechanisms, measures] = await Promise.all([
        items<WireModel>('/models'),
        declarations('/lenses'),
        declarations('/mechanisms'),
        declarations('/measures'),
      ])
      return { models: models.map(readModel), lenses, mechanisms, measures, effects: [] }
    },

    async support() {
      const [{ kind, lenses, mechanism, measures }, all] = await Promise.all([analysis(), this.catalogue()])
      const held = (known: Declaration[], names: readonly string[]) =>
        Object.fromEntries(known.map(({ name }) => [name, names.includes(name) ? null : 'not included in this file']))
      const reasons = { lenses: held(all.lenses, lenses), measures: held(all.measures, measures) }
      return [{ kind, ...reasons, mechanisms: held(all.mechanisms, [mechanism]), effects: {} }]
    },

    submit: alone,
    watch: async () => {},
    cancel: async () => {},
    recent: async () => ({ items: [], next: null }),
    analysis,

    async grid(_id, lens, { without }): Promise<Tiles> {
      return readTiles(await tensors(`/grid/${lens}${without ? '/without' : ''}`))
    },

    async map(_id, lens, wanted) {
      const at = await place(wanted)
      const whole = await mapOf(lens, at)
      if (whole) return whole
      const { factors, ...errors } = await kept(lens, at)
      const { data } = await computePart(factors, wholeOf(factors, 1))
      return { data, rows: factors.queries, cols: factors.keys, exact: true, ...errors }
    },

    async mapPart(_id, lens, wanted, part) {
      const at = await place(wanted)
      const { factors, ...errors } = await kept(lens, at)
      const { pool, queries, keys } = part
      const isWhole = partName(part) === partName(wholeOf(factors, pool))
      const { data } = isWhole ? await overviewOf(lens, at, pool) : await computePart(factors, part)
      const [rows, cols] = [queries, keys].map(([from, to]) => Math.ceil((to - from) / pool))
      // A copy of what is kept, as its reader frees it.
      const own = { data: isWhole ? data.slice() : data, rows, cols, ...errors }
      return pool === 1 ? { ...own, exact: true } : { ...own, exact: false, pool }
    },

    async mapFolded(_id, lens, wanted, axes) {
      const { factors, ...errors } = await kept(lens, await place(wanted))
      const [rows, cols] = axes.map(({ labels }) => labels.length)
      const pieces = membersOf(axes[1]).reduce((most, tokens) => Math.max(most, tokens.length), 1)
      return {
        data: await computeFolded(factors, axes),
        rows,
        cols,
        exact: true,
        ...rounding(sumError(errors, pieces)),
      }
    },

    async sums(_id, lens, wanted) {
      const at = await place(wanted)
      const { queries, keys } = (await kept(lens, at)).factors
      return (await overviewOf(lens, at, overviewPool(queries, keys))).sums
    },

    async overview(_id, name, lens) {
      const [measure, column] = name.split('.')
      const values = tensor(await tensors(`/measures/${measure}/${lens}`), 'values')
      const [layers, heads] = values.shape
      const range = (count: number) => Array.from({ length: count }, (_, i) => i)
      const columns = column
        ? (await declarations('/measures')).find((item) => item.name === measure)?.columns
        : undefined
      const one = (all: Numbers) => (columns ? all[columns.indexOf(column)] : mean(all))
      return range(layers).map((layer) => range(heads).map((head) => one(numbers(cut(values, layer, head)))))
    },

    async measure(_id, measure, lens, wanted) {
      const { layer, head } = await place(wanted)
      return numbers(cut(tensor(await tensors(`/measures/${measure}/${lens}`), 'values'), layer, head))
    },

    exportUrl: () => null,
  })
}
