/** The tensors of one analysis, fetched on demand and cached. */
import { type Analysis, type Head, headName, type MergedHeads } from '../lib/data/analysis'
import type { Source } from '../lib/data/source'
import { afterPaint } from '../lib/drawing/frame'
import { type Matrix, type Tiles, thumbnailSide, tileMatrix } from '../lib/maths/matrix'
import { MOST_HEADS, mergeMaps } from '../lib/maths/merge'
import { Cache } from '../lib/net/cache'

type Numbers = (number | null)[]

/** Holds the maps of a merged head and what is prefetched; more while maps are small. */
const MAPS_KEPT = MOST_HEADS + 8
const BYTES_KEPT = 64 * 2 ** 20

const painted = () => new Promise<void>((resolve) => void afterPaint(resolve))

export class Maps {
  /** Changes whenever a tensor arrives; reading through `#seen` subscribes a view to it. */
  #arrivals = $state(0)
  #grids = new Cache<Tiles>(16)
  #maps = new Cache<Matrix>(MAPS_KEPT, BYTES_KEPT, ({ data }) => data.byteLength)
  /** The last map requested: numbers wait for it. */
  #latest: Promise<unknown> = Promise.resolve()
  #overviews = new Cache<Numbers[]>(64)
  #numbers = new Cache<Numbers>(512)
  #thumbnails = new Map<string, Matrix>()
  #merged: { of: Matrix[]; how: string; map: Matrix } | undefined

  constructor(
    private readonly source: Source,
    readonly id: string,
    private readonly failed: (error: unknown) => void,
    /** Aborts pending requests. */
    private readonly signal: AbortSignal,
    /** The analysis, once known. */
    private readonly about: () => Pick<Analysis, 'maps'> | undefined = () => undefined,
    /** The number of heads of the model; 0 if unknown. */
    private readonly heads = 0,
  ) {}

  /** Take over the maps of an earlier analysis of the same input through these lenses, so that nothing is read or painted twice. */
  inherit(former: Maps, lenses: readonly string[]): void {
    const passes = (key: string) => lenses.includes(key.split(' ')[0])
    this.#grids.inherit(former.#grids, passes)
    this.#maps.inherit(former.#maps, passes)
    for (const [key, map] of former.#thumbnails) if (passes(key)) this.#thumbnails.set(key, map)
  }

  /** A lens with one map per layer has the same map for all heads. */
  #at(lens: string, head: Head): Head {
    return this.about()?.maps[lens]?.by_layer ? { layer: head.layer, head: 0 } : head
  }

  #seen<T>(value: T): T {
    void this.#arrivals
    return value
  }

  #announce<T>(answer: Promise<T>): Promise<T | undefined> {
    return answer.then(
      (value) => {
        this.#arrivals += 1
        return value
      },
      (error) => {
        this.failed(error)
        return undefined
      },
    )
  }

  /** Throws, unlike the others, as the first paint depends on it. */
  firstGrid(lens: string): Promise<Tiles> {
    return this.#grids.get(lens, () => this.#thumbnailsOf(lens, false))
  }

  #thumbnailsOf(lens: string, without: boolean): Promise<Tiles> {
    return this.source.grid(this.id, lens, { without, side: thumbnailSide(this.heads) }, this.signal)
  }

  grid(lens: string): Tiles | undefined {
    return this.#seen(this.#grids.peek(lens))
  }

  /** Thumbnails in which special tokens and sinks count as 0. */
  gridWithout(lens: string): Tiles | undefined {
    return this.#seen(this.#grids.peek(`${lens} without`))
  }

  wantGridWithout(lens: string): void {
    const key = `${lens} without`
    if (this.#grids.peek(key)) return
    void this.#announce(this.#grids.get(key, () => this.#thumbnailsOf(lens, true)))
  }

  wantGrid(lens: string): void {
    if (!this.#grids.peek(lens)) void this.#announce(this.firstGrid(lens))
  }

  /** The exact map if it has arrived, otherwise its thumbnail, otherwise undefined. */
  map(lens: string, open: Head): Matrix | undefined {
    const head = this.#at(lens, open)
    if (head.among) return this.#together(lens, head.among)
    const exact = this.#seen(this.#maps.peek(`${lens} ${headName(head)}`))
    if (exact) return exact
    const tiles = this.grid(lens)
    return tiles && this.#coarse(`${lens} ${headName(head)}`, tiles, head)
  }

  /** Settles once the map has arrived or failed. */
  async wantMap(lens: string, open: Head): Promise<void> {
    const head = this.#at(lens, open)
    if (head.among) {
      await Promise.all(head.among.heads.map((one) => this.wantMap(lens, one)))
      return
    }
    const key = `${lens} ${headName(head)}`
    if (this.#maps.peek(key) || this.about()?.maps[lens]?.stored === false) return
    const coming = this.#announce(this.#maps.get(key, () => this.source.map(this.id, lens, head, this.signal)))
    this.#latest = coming
    await coming
  }

  /** A map opened by the same action is painted first: each request and each answer takes part of a frame from it. */
  async #afterMap<T>(ask: () => Promise<T>): Promise<T> {
    await Promise.resolve()
    await this.#latest
    await painted()
    return ask()
  }

  /** Several heads merged into one map, updated when one of them arrives. */
  #together(lens: string, { heads, how }: MergedHeads): Matrix | undefined {
    const maps = heads.map((head) => this.map(lens, head))
    // Thumbnails and exact maps are not merged with each other: all of one kind, or nothing yet.
    const ready = maps.filter((map) => map !== undefined)
    if (ready.length < maps.length || new Set(ready.map(({ exact }) => exact)).size > 1) return this.#merged?.map
    const known = this.#merged
    if (known?.how === how && known.of.length === ready.length && known.of.every((map, i) => map === ready[i]))
      return known.map
    const map = mergeMaps(ready, how)
    this.#merged = { of: ready, how, map }
    return map
  }

  /** Returns the same object for the same thumbnail, so that nothing is painted twice. */
  #coarse(key: string, tiles: Tiles, head: Head): Matrix {
    const known = this.#thumbnails.get(key)
    if (known) return known
    const made = tileMatrix(tiles, head.layer, head.head)
    this.#thumbnails.set(key, made)
    return made
  }

  overview(measure: string, lens: string): Numbers[] | undefined {
    return this.#seen(this.#overviews.peek(`${measure} ${lens}`))
  }

  wantOverview(measure: string, lens: string): void {
    const key = `${measure} ${lens}`
    if (this.#overviews.peek(key)) return
    void this.#announce(this.#overviews.get(key, () => this.source.overview(this.id, measure, lens, this.signal)))
  }

  numbers(measure: string, lens: string, head: Head): Numbers | undefined {
    return head.among ? undefined : this.#seen(this.#numbers.peek(`${measure} ${lens} ${headName(head)}`))
  }

  wantNumbers(measure: string, lens: string, head: Head): void {
    // Numbers are of single heads.
    if (head.among) return
    const key = `${measure} ${lens} ${headName(head)}`
    if (this.#numbers.peek(key)) return
    void this.#announce(
      this.#numbers.get(key, () =>
        this.#afterMap(() => this.source.measure(this.id, measure, lens, head, this.signal)),
      ),
    )
  }
}
