/** A map of the head view as it is drawn: without what is left out, in shades, and linked to the pointer. */
import { type Axes, boxTokens, firstToken, highlightPlaces } from '../../lib/maths/axis'
import { type Detail, largestVisible } from '../../lib/maths/details'
import type { Box, Highlight } from '../../lib/maths/highlight'
import { type Matrix, maxMagnitude, rowShares, type Sums } from '../../lib/maths/matrix'
import type { Window } from '../../lib/maths/raster'
import { type DrawnAxes, drawnAxes, type SinkTokens, type Treatment } from '../../state/left-out'
import type { Pointer } from '../../state/pointer.svelte'
import type { Panel } from './panel'

/** Each is read by itself, so that nothing is painted twice. */
interface Drawing {
  /** The whole map, and its axes. */
  map: () => Matrix | undefined
  axes: () => Axes
  details: () => readonly Detail[]
  sums: () => Sums | undefined
  sinks: () => SinkTokens
  special: () => Treatment
  /** Colours are shares of the largest value of a row. */
  byRow: () => boolean
  /** Highlighted tokens. */
  lit: () => Highlight
}

const NO_DETAILS: readonly Detail[] = []

type Hand = Pick<Pointer, 'hover' | 'pin' | 'select'>

export class DrawnMap {
  readonly #drawn: DrawnAxes = $derived.by(() => drawnAxes(this.of.axes(), this.of.sinks(), this.of.special()))
  readonly #values = $derived.by(() => {
    const map = this.of.map()
    return map && this.#drawn.draw(map)
  })
  /** What counts for the scales. */
  readonly counted: Matrix | undefined = $derived.by(() => this.#values && this.#drawn.count(this.#values))
  readonly largest: number = $derived.by(() => (this.counted ? maxMagnitude(this.counted.data) : 0))
  readonly #shades = $derived.by(() => (this.counted && this.of.byRow() ? rowShares(this.counted) : this.counted))
  readonly #links = $derived.by(() => linked(this.axes, this.hand))
  readonly lit: Highlight = $derived.by(() => highlightPlaces(...this.axes, this.of.lit()))

  constructor(
    private readonly of: Drawing,
    private readonly hand: Hand,
  ) {}

  get axes(): Axes {
    return this.#drawn.axes
  }

  /** The largest magnitude that a window shows. */
  largestIn(window: Window): number {
    const [{ counted }, [queries, keys]] = [this, this.axes]
    if (!counted) return 0
    const details = counted === this.of.map() ? this.of.details() : NO_DETAILS
    return largestVisible(counted, details, window, queries.labels.length, keys.labels.length)
  }

  /** The map with its words; undefined until it is there. */
  panel(words: Pick<Panel, 'title' | 'warning' | 'label' | 'graph' | 'source' | 'scale'>): Panel | undefined {
    const [values, map] = [this.#values, this.#shades]
    if (!values || !map) return undefined
    // They are of the map as it is, not of what is left of it, nor of shares of its rows; and they may be coarser than all of it.
    const [details, sums] =
      map === this.of.map() && !map.exact ? [this.of.details(), this.of.sums()] : [NO_DETAILS, undefined]
    return { ...words, map, values, details, sums, marked: this.#drawn.marked, largest: this.largest, ...this.#links }
  }
}

/** Event handlers of a map: its axes use places, pointers use tokens. */
const linked = ([queries, keys]: Axes, hand: Hand) => ({
  queries,
  keys,
  onhover: (query: number | null, key: number | null) => hand.hover(firstToken(queries, query), firstToken(keys, key)),
  onpin: (query: number | null, key: number | null, add: boolean) =>
    hand.pin(firstToken(queries, query), firstToken(keys, key), add),
  onselect: (box: Box) => hand.select(boxTokens(queries, keys, box)),
})
