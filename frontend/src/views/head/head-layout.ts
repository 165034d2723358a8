/** Layout of heat maps and graph in the centre column. All sizes in pixels. */
import type { Axis } from '../../lib/maths/axis'
import { isWide, LABEL_HEIGHT, labelWidth } from '../../lib/text/labels'
import type { MapLayout } from '../../marks/map-picture'
import type { Layout } from '../../state/selection.svelte'

export interface Room {
  width: number
  /** Infinity if the page scrolls. */
  height: number
  maps: number
  view: 'map' | 'graph' | 'both'
  /** The map is read in parts: there are sums beside it, and a line below it that says what is visible. */
  long?: boolean
  /** Labels are the first words of sentences, and there are few of them. */
  folded?: boolean
  /** A warning is below a map. */
  warned: boolean
  /** Queries and keys are the same tokens, so that rows of the graph can be aligned with rows of the map. */
  aligned?: boolean
  /** The graph runs along the text, from left to right, and is below the map. */
  along?: boolean
  /** The graph is drawn over an image, which needs as much space as the map. */
  pictured?: boolean
}

/** Size of the graph; `top` and `pitch` align the rows of its columns with those of the map. */
export interface GraphRoom {
  width: number
  height: number
  top: number
  pitch: number
  /** Width of a column of tokens. */
  column: number
  characters: number
}

/** How the tokens of a graph are laid out: as chosen, or as suits the text. Arcs require self-attention, and an image its patches. */
export function graphKindOf(chosen: Layout | '', { labels, special }: Axis, same: boolean, pictured: boolean): Layout {
  if (pictured && chosen === '') return 'image'
  const suited = isWide(labels.filter((_, place) => !special[place])) ? 'rows' : 'columns'
  const wanted = (chosen === 'image' && !pictured ? '' : chosen) || suited
  return wanted === 'arcs' && !same ? 'rows' : wanted
}

interface HeadLayout {
  /** The graph is beside the map, not below. */
  beside: boolean
  map: MapLayout
  graph: GraphRoom
  /** Width of each of several columns; 0 for a single one. */
  column: number
}

const CHARACTERS = 9
const SENTENCE_CHARACTERS = 16
const LONG_CHARACTERS = 13
const GAP = 28
/** Title and legend above a map, and its edge. */
const AROUND = 30
const WARNING = 44
/** Sums along a long map, and the line below it. */
const SUMS = 18
const LEVEL = 20
const GRAPH_WIDTH = 228
/** The smallest map that is shown beside the graph. */
const LEAST_MAP = 330
const LARGEST_CELL = 72
const LARGEST_SENTENCE = 96
const SCROLLBAR = 10
const TWO_LINES = 416
/** Pitch of the rows of a column. */
const PITCH = 18
/** With two maps side by side, the height of the graphs below them. */
const STRIP = 220
/** The controls above a graph. */
const CONTROLS = 28
/** The line that says which part of a graph is visible. */
const PART = 20
/** In narrower columns several maps are stacked. */
const NARROW = 560
/** In narrower columns the readout has two lines. */
const ONE_LINE = 1100

function charactersOf({ folded, long, width }: Room): number {
  if (width < NARROW) return CHARACTERS
  return folded ? SENTENCE_CHARACTERS : long ? LONG_CHARACTERS : CHARACTERS
}

/** Height of the readout below a map, with its margin. */
export const readoutHeight = (width: number): number => (width < ONE_LINE ? 44 : 28)

export function headLayout(labels: readonly string[], room: Room): HeadLayout {
  // As wide as the longest label may be, so that the corner of the map never moves.
  const characters = charactersOf(room)
  const label = labelWidth(characters) + 8
  const beside =
    room.view === 'both' && !room.along && room.maps === 1 && room.width >= label + LEAST_MAP + GAP + GRAPH_WIDTH
  const side = mapSide(labels.length, label, room, beside)
  const map = { left: label, top: label, side, characters, sums: room.long ? SUMS : 0 }
  const column =
    room.maps > 1 && room.width >= NARROW ? Math.floor((room.width - GAP * (room.maps - 1)) / room.maps) : 0
  const graph = graphLayout(labels.length, label, column > 0 ? { ...room, width: column } : room, beside, side)
  return { beside, map, graph, column }
}

function mapSide(
  n: number,
  label: number,
  { width, height, maps, view, long, folded, warned, along, pictured }: Room,
  beside: boolean,
): number {
  const sums = long ? SUMS : 0
  const graph = beside ? Math.max(GRAPH_WIDTH, width * (pictured ? 0.45 : 0.25)) + GAP : 0
  const across = (width - graph - GAP * (maps - 1)) / (width < NARROW ? 1 : maps) - label - sums - 2
  // Side by side, the graph is below in a strip of its own.
  const below =
    view === 'both' && !beside
      ? Math.max(maps > 1 ? STRIP : 190, along && Number.isFinite(height) ? height * 0.42 : 0)
      : 0
  const down = Number.isFinite(height)
    ? height - label - AROUND - (long ? SUMS + LEVEL : 0) - (warned ? WARNING : 0) - below
    : 620
  const side = Math.max(120, Math.floor(Math.min(across, down, n * (folded ? LARGEST_SENTENCE : LARGEST_CELL))))
  // Equal cells if they are large enough to be seen.
  return side / n >= 4 ? Math.floor(side / n) * n : side
}

function graphLayout(n: number, label: number, room: Room, beside: boolean, side: number): GraphRoom {
  const cell = side / n
  const aligned = beside && room.aligned !== false && cell >= LABEL_HEIGHT
  const wide = beside
    ? room.width - side - label - GAP - 2
    : Math.min(room.width, room.along || room.pictured ? room.width : 560)
  // Controls on two lines extend into the space above the columns.
  const top = aligned ? label : wide < TWO_LINES ? 50 : 26
  const free = graphHeight(label, room, beside, side)
  // Rows move closer if all of them then fit.
  const close = Math.min(PITCH, Math.floor((free - top - 2) / n))
  // Below two maps every row counts.
  const far = room.maps > 1 ? LABEL_HEIGHT : PITCH
  const pitch = aligned ? cell : close >= LABEL_HEIGHT ? close : far
  const content = Math.ceil(top + n * pitch + 2)
  if (room.along || room.pictured)
    return {
      width: Math.floor(wide) - SCROLLBAR,
      height: free - (room.along ? PART : 0),
      top,
      pitch,
      column: label - 4,
      characters: charactersOf(room),
    }
  // Whole rows only, so that no name is cut.
  const height = content <= free ? content : Math.floor(top + Math.floor((free - PART - top) / pitch) * pitch)
  const width = Math.floor(wide) - (content > height ? SCROLLBAR : 0)
  return { width, height, top, pitch, column: label - 4, characters: charactersOf(room) }
}

function graphHeight(
  label: number,
  { width, height, view, long, warned, along, pictured }: Room,
  beside: boolean,
  side: number,
): number {
  // Two images, one below the other, and their controls.
  if (!Number.isFinite(height) && pictured) return 2 * Math.min(width, 300) + 130
  if (!Number.isFinite(height)) return along ? 480 : 900
  return Math.max(
    150,
    beside || view === 'graph'
      ? height - CONTROLS
      : height - side - label - AROUND - (long ? SUMS + LEVEL : 0) - (warned ? WARNING : 0) - CONTROLS - 8,
  )
}
