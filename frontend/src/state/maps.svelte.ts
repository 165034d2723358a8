/** The tensors of one analysis, fetched on demand and cached. */
import { type Analysis, type Head, headName, type MapInfo, type MergedHeads } from '../lib/data/analysis'
import { isMapsName } from '../lib/data/effects'
import type { Source } from '../lib/data/source'
import { afterPaint } from '../lib/drawing/frame'
import { type Detail, isLarge, overviewPool, type Part, partFor } from '../lib/maths/details'
import { type Matrix, releaseMatrix, type Sums, type Tiles, thumbnailSide, tileMatrix } from '../lib/maths/matrix'
import { MapMerger, mergeMaps } from '../lib/maths/merge'
import type { Window } from '../lib/maths/raster'
import { Cache } from '../lib/net/cache'
import { FoldedMaps, mapKey } from './folded-maps.svelte'
import { MapParts } from './map-parts.svelte'

type Numbers = (number | null)[]

/** Maps that are on screen together: those of a comparison. More are kept while they take no more than this many bytes: three maps of 2,048 tokens. */
const ON_SCREEN = 2
const BYTES_KEPT = 48 * 2 ** 20

/** Maps that two analyses keep. */
const shared = new WeakSet<Matrix>()

const painted = () => new Promise<void>((resolve) => void afterPaint(resolve))

export class Maps {
  /** Changes whenever a tensor arrives; reading through `#seen` subscribes a view to it. */
  #arrivals = $state(0)
  #grids = new Cache<Tiles>(16)
  #maps = new Cache<Matrix>(
    ON_SCREEN,
    BYTES_KEPT,
    ({ data }) => data.byteLength,
    (map) => this.#release(map),
  )
  readonly #parts = new MapParts((error) => this.failed(error))
  readonly folded: FoldedMaps
  /** The last map requested: numbers wait for it. */
  #latest: Promise<unknown> = Promise.resolve()
  #overviews = new Cache<Numbers[]>(64)
  #numbers = new Cache<Numbers>(512)
  #thumbnails = new Map<string, Matrix>()
  /** Maps of effects, which the analysis does not list. */
  readonly #added = new Map<string, MapInfo>()
  /** Merged thumbnails, and what they are of. */
  #merged: { key: string; tiles: Tiles; map: Matrix } | undefined

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
  ) {
    this.folded = new FoldedMaps(this, source, id, failed, signal)
  }

  /** Maps of an effect on the same input can be read under this name, too. */
  add(name: string, info: MapInfo): void {
    this.#added.set(name, info)
  }

  #infoOf(lens: string): MapInfo | undefined {
    return this.#added.get(lens) ?? this.about()?.maps[lens]
  }

  /** Take over the maps of an earlier analysis of the same input through these lenses, and of effects on it, so that nothing is read or painted twice. */
  inherit(former: Maps, lenses: readonly string[]): void {
    const passes = (key: string) => lenses.includes(key.split(' ')[0]) || (lenses.length > 0 && isMapsName(key))
    this.#grids.inherit(former.#grids, passes)
    for (const map of this.#maps.inherit(former.#maps, passes)) shared.add(map)
    for (const [key, map] of former.#thumbnails) if (passes(key)) this.#thumbnails.set(key, map)
  }

  /** Views stop reading the map at once; it is freed after the next paint, when nothing can still be reading it. */
  #release(map: Matrix): void {
    this.#arrivals += 1
    if (!shared.has(map)) afterPaint(() => releaseMatrix(map))
  }

  /** A lens with one map per layer has the same map for all heads. */
  at(lens: string, head: Head): Head {
    return this.#infoOf(lens)?.by_layer ? { layer: head.layer, head: 0 } : head
  }

  #seen<T>(value: T): T {
    void this.#arrivals
    return value
  }

  async #announce<T>(answer: Promise<T>, until?: AbortSignal): Promise<T | undefined> {
    try {
      const value = await answer
      this.#arrivals += 1
      return value
    } catch (error) {
      if (!until?.aborted) this.failed(error)
      return undefined
    }
  }

  /** Throws, unlike the others, as the first paint depends on it. */
  firstGrid(lens: string): Promise<Tiles> {
    return this.#grids.get(lens, () => this.#thumbnailsOf(lens, false))
  }

  #thumbnailsOf(lens: string, without: boolean): Promise<Tiles> {
    const [, , queries, keys] = this.#infoOf(lens)?.shape ?? [0, 0, 0, 0]
    const how = { without, side: thumbnailSide(this.heads), tokens: Math.max(queries, keys) }
    return this.source.grid(this.id, lens, how, this.signal)
  }

  grid(lens: string): Tiles | undefined {
    return this.#seen(this.#grids.peek(lens))
  }

  /** Thumbnails in which special tokens and sinks count as 0; of effects they count. */
  gridWithout(lens: string): Tiles | undefined {
    if (isMapsName(lens)) return this.grid(lens)
    return this.#seen(this.#grids.peek(`${lens} without`))
  }

  wantGridWithout(lens: string): void {
    const key = `${lens} without`
    if (isMapsName(lens)) this.wantGrid(lens)
    else if (!this.#grids.peek(key)) void this.#announce(this.#grids.get(key, () => this.#thumbnailsOf(lens, true)))
  }

  wantGrid(lens: string): void {
    if (!this.#grids.peek(lens)) void this.#announce(this.firstGrid(lens))
  }

  /** The exact map if it has arrived, otherwise its thumbnail, otherwise undefined. */
  map(lens: string, open: Head): Matrix | undefined {
    const head = this.at(lens, open)
    const exact = this.#seen(this.#maps.peek(mapKey(lens, head)))
    if (exact) return exact
    const tiles = this.grid(lens)
    if (!tiles) return undefined
    return head.among ? this.#together(lens, tiles, head, head.among) : this.#coarse(mapKey(lens, head), tiles, head)
  }

  /** Settles once the map has arrived or failed. Reading a large one ends once `until` is aborted. */
  async wantMap(lens: string, open: Head, until?: AbortSignal): Promise<void> {
    const head = this.at(lens, open)
    const { shape, stored } = this.#infoOf(lens) ?? {}
    if (stored === false) return
    const leaving = isLarge(shape) ? until : undefined
    const key = mapKey(lens, head)
    const make = (signal: AbortSignal) =>
      head.among ? this.#merge(lens, head.among) : this.#fetch(lens, head, leaving && signal)
    const asked = this.#maps.get(key, make, leaving)
    // It is the last to be evicted now.
    if (this.#maps.peek(key)) return
    this.#latest = this.#announce(asked, leaving)
    await this.#latest
  }

  #fetch(lens: string, head: Head, signal = this.signal): Promise<Matrix> {
    const whole = this.#overviewOf(lens)
    return whole ? this.#fetchPart(lens, head, whole, signal) : this.source.map(this.id, lens, head, signal)
  }

  #fetchPart(lens: string, head: Head, part: Part, signal = this.signal): Promise<Matrix> {
    return this.source.mapPart!(this.id, lens, head, part, signal)
  }

  /** A long map is read as an overview; undefined for other maps. */
  #overviewOf(lens: string): Part | undefined {
    const shape = this.#infoOf(lens)?.shape
    if (!shape || !this.source.mapPart) return undefined
    const [, , queries, keys] = shape
    const pool = overviewPool(queries, keys)
    return pool > 1 ? { pool, queries: [0, queries], keys: [0, keys] } : undefined
  }

  /** The parts of a long map that have arrived. */
  details(lens: string, open: Head): readonly Detail[] {
    return this.#parts.details(mapKey(lens, this.at(lens, open)))
  }

  /** Whole rows and columns of a long map that have arrived. */
  lines(lens: string, open: Head): readonly Detail[] {
    return this.#parts.lines(mapKey(lens, this.at(lens, open)))
  }

  /** Read the part that a window shows, until `until` is aborted: of a long map, or of a large one while there is only a thumbnail of it. */
  async wantDetail(lens: string, open: Head, window: Window, until?: AbortSignal): Promise<void> {
    const { shape, stored } = this.#infoOf(lens) ?? {}
    if (!shape || !isLarge(shape) || stored === false || open.among || !this.source.mapPart) return
    const head = this.at(lens, open)
    const key = mapKey(lens, head)
    const coarse = this.#overviewOf(lens)?.pool ?? (this.#maps.peek(key) ? 1 : Number.POSITIVE_INFINITY)
    const part = partFor(window, shape[2], shape[3], coarse)
    if (part) await this.#parts.want(key, part, (signal) => this.#fetchPart(lens, head, part, signal), until)
  }

  /** Read what queries of a long map attend to (a span of rows), or what attends to keys (a span of columns). */
  async wantLine(lens: string, open: Head, span: Partial<Pick<Part, 'queries' | 'keys'>>): Promise<void> {
    const [head, whole] = [this.at(lens, open), this.#readInParts(lens, open)]
    const part = whole && { ...whole, ...span, pool: 1 }
    if (part) await this.#parts.wantLine(mapKey(lens, head), part, () => this.#fetchPart(lens, head, part))
  }

  /** The sums of a long map over all of its keys and queries. */
  sums(lens: string, open: Head): Sums | undefined {
    return this.#parts.sums(mapKey(lens, this.at(lens, open)))
  }

  /** Read the sums of a long map, which takes as long as its overview, until `until` is aborted. */
  async wantSums(lens: string, open: Head, until: AbortSignal): Promise<void> {
    const head = this.at(lens, open)
    if (!this.#readInParts(lens, open) || !this.source.sums || isMapsName(lens)) return
    await this.#parts.wantSums(mapKey(lens, head), (signal) => this.source.sums!(this.id, lens, head, signal), until)
  }

  /** The whole of a map that is read in parts; undefined for other maps. */
  #readInParts(lens: string, head: Head): Part | undefined {
    return head.among || this.#infoOf(lens)?.stored === false ? undefined : this.#overviewOf(lens)
  }

  /** Reads at most as many maps at a time as are kept anyway. */
  async #merge(lens: string, { heads, how }: MergedHeads): Promise<Matrix> {
    const merger = new MapMerger(how)
    const most = Math.max(1, this.#room(lens))
    for (let at = 0; at < heads.length; at += most) {
      const some = heads.slice(at, at + most)
      const maps = some.map((head) => this.#maps.get(mapKey(lens, head), () => this.#fetch(lens, head)))
      // Each as soon as it is there, before it may be evicted.
      for (const map of maps) merger.add(await map)
    }
    return merger.finish()
  }

  /** How many maps of a lens are kept; 1 if their size is unknown. */
  #room(lens: string): number {
    const [shape, pool] = [this.#infoOf(lens)?.shape, this.#overviewOf(lens)?.pool ?? 1]
    return shape ? Math.floor((BYTES_KEPT * pool * pool) / (4 * shape[2] * shape[3])) : 1
  }

  /** How many maps of a lens can be fetched ahead, so that none on screen is evicted. */
  spare(lens: string): number {
    return Math.max(0, this.#room(lens) - ON_SCREEN)
  }

  /** A map opened by the same action is painted first: each request and each answer takes part of a frame from it. */
  async #afterMap<T>(ask: () => Promise<T>): Promise<T> {
    await Promise.resolve()
    await this.#latest
    await painted()
    return ask()
  }

  /** The merged thumbnails of several heads, until their maps have been merged. */
  #together(lens: string, tiles: Tiles, head: Head, { heads, how }: MergedHeads): Matrix {
    const [key, known] = [mapKey(lens, head), this.#merged]
    if (known?.key === key && known.tiles === tiles) return known.map
    const coarse = heads.map((one) => this.#coarse(mapKey(lens, one), tiles, one))
    this.#merged = { key, tiles, map: mergeMaps(coarse, how) }
    return this.#merged.map
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
    const key = `${measure} ${lens} ${headName(head)}`
    // Numbers are of single heads.
    if (head.among || this.#numbers.peek(key)) return
    void this.#announce(
      this.#numbers.get(key, () =>
        this.#afterMap(() => this.source.measure(this.id, measure, lens, head, this.signal)),
      ),
    )
  }
}
