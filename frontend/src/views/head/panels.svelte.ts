/** What the head view draws: the open head, what it is compared with or their difference, on scales that suit them. */
import { type Declaration, type Head, headTitle } from '../../lib/data/analysis'
import { isMapsName } from '../../lib/data/effects'
import { type Axes, groupMap } from '../../lib/maths/axis'
import { type Detail, isLong } from '../../lib/maths/details'
import type { Highlight } from '../../lib/maths/highlight'
import { type Matrix, tilesMax } from '../../lib/maths/matrix'
import type { Range, Scale } from '../../lib/maths/scale'
import { cellWindow, shownUnit, type Unit, unitAxes } from '../../lib/maths/units'
import { writeZoom } from '../../lib/text/pins'
import type { SnippetSide } from '../../lib/text/snippets'
import type { ComparisonSide } from '../../state/comparison-side'
import { mapKey } from '../../state/folded-maps.svelte'
import { drawnAxes, drawnTreatment, NO_SINKS, type SinkTokens, sidesSinks, type Treatment } from '../../state/left-out'
import { LinkedPointer } from '../../state/linked-pointer.svelte'
import type { OpenAnalysis } from '../../state/open-analysis'
import type { Pointer } from '../../state/pointer.svelte'
import type { Compare, Selection } from '../../state/selection.svelte'
import { DrawnMap } from './drawn-map.svelte'
import type { Panel } from './panel'

/** Properties of the view. */
interface Subject {
  readonly shown: OpenAnalysis
  readonly lenses: readonly Declaration[]
  readonly lens: string
  readonly head: Head
  readonly name: string
  readonly second: ComparisonSide | undefined
  readonly layered: boolean
}

const warningOf = ({ analysis }: OpenAnalysis, lens: string | null) =>
  analysis.warnings.flatMap((warning) => (warning.lens === lens ? [warning.message] : [])).join(' ')

const signed = ({ analysis }: OpenAnalysis, lens: string) => analysis.maps[lens]?.signed ?? false

const sourceOf = ({ shown, lens, head }: Pick<Subject, 'shown' | 'lens' | 'head'>) =>
  `${shown.analysis.id} ${mapKey(lens, shown.maps.at(lens, head))}`

const NO_DETAILS: readonly Detail[] = []
const NO_LEFT = [NO_SINKS, NO_SINKS] as const

export class Panels {
  /** One side is in logits and the other in attention, which have neither a scale nor a difference. */
  readonly #mixed: boolean = $derived.by(() => {
    const { second, lens } = this.of
    return second !== undefined && isMapsName(second.lens) !== isMapsName(lens)
  })
  /** Maps that cannot be subtracted are shown side by side. */
  readonly compare: Compare = $derived.by(() => {
    const { second, shown } = this.of
    if (!second) return 'off'
    const refused = this.#mixed || shown.comparison?.refusal || isLong(shown.analysis.maps[this.of.lens]?.shape)
    return this.selection.compare === 'difference' && refused ? 'side' : this.selection.compare
  })
  /** Both sides are on screen, each on a scale of its own. */
  readonly apart: boolean = $derived.by(() => this.#mixed && this.compare === 'side')
  /** The other side, if it is on screen. */
  readonly second: ComparisonSide | undefined = $derived.by(() => (this.compare === 'off' ? undefined : this.of.second))
  /** Two heads of one analysis are compared. */
  readonly #pair = $derived.by(() => this.of.second?.picks === 'than')
  readonly links = $derived.by(() => this.of.shown.comparison?.links ?? null)
  readonly byWords: boolean = $derived.by(() => this.compare === 'difference' && this.links !== null)

  /** How special tokens and sinks are drawn. */
  readonly special: Treatment = $derived.by(() =>
    drawnTreatment(this.of.shown.analysis, this.of.lens, this.selection.special),
  )
  readonly sides = $derived.by(() => {
    const { shown, lens, head } = this.of
    return [{ shown, lens, head }, ...(this.second ? [this.second] : [])]
  })
  readonly sinks: readonly [SinkTokens, SinkTokens] = $derived.by(() =>
    sidesSinks(this.sides, this.special, this.links === null),
  )
  /** What a row and a column stand for. */
  readonly unit: Unit = $derived.by(() => {
    const { unit } = this.selection
    return this.byWords && unit === 'sentences' ? 'pieces' : shownUnit(this.of.shown.analysis, unit)
  })
  /** Only the axes of sentences depend on the sinks of a head: others stay as they are from head to head. */
  readonly #left = $derived.by(() => (this.unit === 'sentences' ? this.sinks : NO_LEFT))
  /** All tokens of the open head, or its words or sentences. Pointers always refer to tokens. */
  readonly own: Axes = $derived.by(() => unitAxes(this.of.shown.analysis, this.unit, this.#left[0]))
  readonly others: Axes = $derived.by(() =>
    this.second ? unitAxes(this.second.shown.analysis, this.unit, this.#left[1]) : this.own,
  )

  /** The axes of both sides if their maps are folded where they are kept, as they are too long to be read. */
  readonly folds: readonly (Axes | null)[] = $derived.by(() =>
    this.sides.map(({ shown, lens }, i) =>
      this.unit === 'sentences' && isLong(shown.analysis.maps[lens]?.shape) ? [this.own, this.others][i] : null,
    ),
  )
  // Each derived holds one object that only changes if necessary, so that nothing is painted twice.
  readonly #map = $derived.by(() => this.#read(0))
  readonly #otherMap = $derived.by(() => this.#read(1))
  readonly #difference = $derived.by(() =>
    this.compare === 'difference' ? this.of.shown.comparison?.difference(this.#map, this.#otherMap) : undefined,
  )
  /** The map of the first panel with all of its tokens. */
  readonly whole: Matrix | undefined = $derived.by(() => {
    if (this.byWords) return this.#difference
    if (this.folds[0]) return this.#map
    return this.#along(this.own, this.compare === 'difference' ? this.#difference : this.#map)
  })
  readonly #otherWhole = $derived.by(() => {
    if (this.compare !== 'side') return undefined
    return this.folds[1] ? this.#otherMap : this.#along(this.others, this.#otherMap)
  })
  /** The open head or the difference, and what is beside it. */
  readonly #drawn: readonly [DrawnMap, DrawnMap]

  /** Along the longest axis. */
  readonly labels: readonly string[] = $derived.by(() => {
    const [first, beside] = this.#drawn
    const axes = [...(this.byWords ? this.own : first.axes), ...(this.compare === 'side' ? beside.axes : [])]
    return axes.map(({ labels }) => labels).reduce((a, b) => (b.length > a.length ? b : a))
  })

  /** A difference has no row scale and no grid, so its colours span this head. */
  readonly range: Range = $derived.by(() =>
    this.compare === 'difference' || this.apart || this.of.layered ? 'head' : this.selection.range,
  )
  readonly #visible = $derived.by(() => {
    if (this.range !== 'visible') return 0
    return Math.max(...this.#drawn.map((drawn) => drawn.largestIn(this.selection.zoom)))
  })
  readonly #overAll = $derived.by(() => {
    const grids = this.sides.map(({ shown: { maps }, lens }) =>
      this.special === 'show' ? maps.grid(lens) : maps.gridWithout(lens),
    )
    return Math.max(0, ...grids.flatMap((tiles) => tiles ?? []).map(tilesMax))
  })
  /** What the strongest colour stands for. Side by side, both share one scale to be comparable. */
  readonly #max = $derived.by(() => {
    if (this.range === 'row') return 1
    if (this.range === 'visible') return this.#visible
    if (this.range === 'all' && this.#overAll > 0) return this.#overAll
    return Math.max(...this.#drawn.map(({ largest }) => largest))
  })

  readonly #mapTitle = $derived.by(() => {
    const { lens, name } = this.of
    if (!this.second) return this.#titleOf(lens)
    if (this.compare === 'side') return name
    return `${this.second.name} \u2212 ${this.inPhrase(name)}${this.byWords ? ', by words' : ''}`
  })
  /** Names of the values of both sides: lenses of one analysis, otherwise what distinguishes the two. */
  readonly names: readonly [string, string] = $derived.by(() => {
    const { shown, lens, name, second } = this.of
    if (this.second && this.second.shown !== shown) return [name, this.second.name]
    if (this.#pair && second) return [name.toLowerCase(), second.name.toLowerCase()]
    return [this.#titleOf(lens).toLowerCase(), second?.shown === shown ? second.name.toLowerCase() : '']
  })
  /** What is on screen, within a phrase. */
  readonly title: string = $derived.by(() => {
    const { head, second } = this.of
    return this.#pair && second ? `${this.placeOf(head)} and ${this.placeOf(second.head)}` : this.placeOf(head)
  })

  /** Warnings about the whole analysis are below its first map. */
  readonly general: string = $derived.by(() => warningOf(this.of.shown, null))
  readonly #first: Panel | undefined = $derived.by(() => {
    const { shown, lens, head } = this.of
    const subtracted = this.compare === 'difference' ? this.second : undefined
    const warning = warningOf(shown, lens) || (subtracted ? warningOf(subtracted.shown, subtracted.lens) : '')
    const place = this.placeOf(head)
    const graph = this.#pair && subtracted ? `${this.placeOf(subtracted.head)} \u2212 ${place}` : place
    return this.#drawn[0].panel({
      title: this.#mapTitle,
      warning: [warning, this.general].filter(Boolean).join(' '),
      label: `Heat map of ${graph}`,
      graph,
      source: [this.of, ...(subtracted ? [subtracted] : [])].map(sourceOf).join(),
      scale: this.#scale(0, subtracted !== undefined || signed(shown, lens)),
    })
  })
  readonly #beside: Panel | undefined = $derived.by(() => {
    if (!this.second) return undefined
    const { shown, lens, head, name } = this.second
    const at = this.placeOf(head)
    return this.#drawn[1].panel({
      title: name,
      warning: warningOf(shown, lens),
      label: this.#pair ? `Heat map of ${at}` : `${name} map of ${at}`,
      graph: this.#pair ? at : `${at}, ${name}`,
      source: sourceOf(this.second),
      scale: this.#scale(1, signed(shown, lens)),
    })
  })
  readonly all: readonly Panel[] = $derived.by(() => [this.#first, this.#beside].filter((panel) => panel !== undefined))

  constructor(
    private readonly of: Subject,
    private readonly selection: Selection,
    pointer: Pointer,
  ) {
    const linked = new LinkedPointer(pointer, () => this.links)
    const shared = { special: () => this.special, byRow: () => this.range === 'row' }
    const first = {
      ...shared,
      map: () => this.whole,
      axes: (): Axes => (this.byWords && this.links ? [this.links.queries.axis, this.links.keys.axis] : this.own),
      details: () => this.#detailsOf(this.of),
      sums: () =>
        this.compare === 'difference' || this.folds[0]
          ? undefined
          : this.of.shown.maps.sums(this.of.lens, this.of.head),
      sinks: () => this.sinks[0],
      lit: () => (this.byWords ? { ...pointer.lit, box: null } : pointer.lit),
    }
    const beside = {
      ...shared,
      map: () => this.#otherWhole,
      axes: () => this.others,
      details: () => (this.second ? this.#detailsOf(this.second) : NO_DETAILS),
      sums: () => (this.folds[1] ? undefined : this.second?.shown.maps.sums(this.second.lens, this.second.head)),
      sinks: () => this.sinks[1],
      lit: () => linked.lit,
    }
    this.#drawn = [new DrawnMap(first, pointer), new DrawnMap(beside, linked)]
  }

  /** What the map is compared with, as scripts and captions have it. */
  get beside(): SnippetSide | undefined {
    const { second } = this
    return second && { analysis: second.shown.analysis, lens: second.lens, head: second.head }
  }

  placeOf = (head: Head): string => (this.of.layered ? `layer ${head.layer}` : headTitle(head))

  /** Names of lenses and heads, unlike those of models and texts, are lower case within a phrase. */
  inPhrase(name: string): string {
    return this.of.second?.shown === this.of.shown ? name.toLowerCase() : name
  }

  litOf(panel: number): Highlight {
    return this.#drawn[panel].lit
  }

  #titleOf(lens: string): string {
    return this.of.lenses.find(({ name }) => name === lens)?.title ?? lens
  }

  #scale(panel: number, signed: boolean): Scale {
    return { kind: this.selection.scale, signed, max: this.apart ? this.#drawn[panel].largest : this.#max }
  }

  /** They are of tokens. */
  #detailsOf({ shown, lens, head }: Pick<Subject, 'shown' | 'lens' | 'head'>): readonly Detail[] {
    return this.unit === 'pieces' ? shown.maps.details(lens, head) : NO_DETAILS
  }

  #read(side: 0 | 1): Matrix | undefined {
    if (!this.sides[side]) return undefined
    const [{ shown, lens, head }, axes] = [this.sides[side], this.folds[side]]
    return axes ? shown.maps.folded.map(lens, head, axes) : shown.maps.map(lens, head)
  }

  #along(axes: Axes, map: Matrix | undefined): Matrix | undefined {
    return map && this.unit !== 'pieces' ? groupMap(map, ...axes) : map
  }

  /** Show the tokens of a cell of sentences. */
  unfold(panel: number, query: number, key: number): void {
    const sinks = this.sinks[panel]
    const tokens = unitAxes(this.sides[panel].shown.analysis, 'pieces', sinks)
    const window = cellWindow(this.#drawn[panel].axes, drawnAxes(tokens, sinks, this.special).axes, query, key)
    this.selection.set({ unit: 'pieces', zoom: writeZoom(window) }, 'push')
  }
}
