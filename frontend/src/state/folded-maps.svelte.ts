/** Maps that are too long to be read as a whole, by sentences: they are folded where they are kept, and read so. */
import { type Head, headName } from '../lib/data/analysis'
import type { Source } from '../lib/data/source'
import { type Axes, groupMap } from '../lib/maths/axis'
import { type Matrix, thumbnailValue } from '../lib/maths/matrix'
import { MapMerger } from '../lib/maths/merge'
import { Cache } from '../lib/net/cache'

/** Those of a comparison, and the ones before. */
const MAPS = 8

interface Overviews {
  map(lens: string, head: Head): Matrix | undefined
  /** The head under which a map is read. */
  at(lens: string, head: Head): Head
}

export class FoldedMaps {
  /** Changes whenever a map arrives; reading it subscribes a view. */
  #arrivals = $state(0)
  readonly #kept = new Cache<Matrix>(MAPS)
  readonly #previews = new WeakMap<Matrix, Matrix>()

  constructor(
    private readonly overviews: Overviews,
    private readonly source: Source,
    private readonly id: string,
    private readonly failed: (error: unknown) => void,
    private readonly signal: AbortSignal,
  ) {}

  /** The map if it has arrived, otherwise something coarse in its cells. The axes of a long text are always the same. */
  map(lens: string, head: Head, axes: Axes): Matrix | undefined {
    void this.#arrivals
    const found = this.#kept.peek(mapKey(lens, this.overviews.at(lens, head)))
    if (found) return found
    const coarse = this.overviews.map(lens, head)
    return coarse && this.#preview(coarse, axes)
  }

  /** Settles once the map has arrived or failed. */
  async want(lens: string, open: Head, axes: Axes): Promise<void> {
    const head = this.overviews.at(lens, open)
    const key = mapKey(lens, head)
    if (this.#kept.peek(key)) return
    await this.#kept.get(key, () => this.#read(lens, head, axes)).then(() => (this.#arrivals += 1), this.failed)
  }

  async #read(lens: string, head: Head, axes: Axes): Promise<Matrix> {
    if (!head.among) return this.#fetch(lens, head, axes)
    const merger = new MapMerger(head.among.how)
    for (const one of head.among.heads) merger.add(await this.#fetch(lens, one, axes))
    return merger.finish()
  }

  async #fetch(lens: string, head: Head, axes: Axes): Promise<Matrix> {
    if (this.source.mapFolded) return this.source.mapFolded(this.id, lens, head, axes, this.signal)
    return groupMap(await this.source.map(this.id, lens, head, this.signal), ...axes)
  }

  #preview(coarse: Matrix, [queries, keys]: Axes): Matrix {
    const known = this.#previews.get(coarse)
    if (known) return known
    const [rows, cols] = [queries.labels.length, keys.labels.length]
    const data = new Float32Array(rows * cols)
    for (let q = 0; q < rows; q++)
      for (let k = 0; k < cols; k++)
        data[q * cols + k] = thumbnailValue(
          coarse,
          [queries.start[q], queries.of.length],
          [keys.start[k], keys.of.length],
        )
    const made = { data, rows, cols, exact: false }
    this.#previews.set(coarse, made)
    return made
  }
}

/** The name of a map among those of an analysis, which begins with its lens. */
export const mapKey = (lens: string, head: Head): string =>
  [lens, ...(head.among ? [head.among.how, ...head.among.heads.map(headName)] : [headName(head)])].join(' ')
