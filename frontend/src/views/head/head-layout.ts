/** How heat maps and graph share the centre column. Pixels in, pixels out. */
import { LABEL_HEIGHT, labelWidth } from '../../lib/text/labels'
import type { MapLayout } from '../../marks/heatmap-painter'

export interface Room {
  width: number
  /** Infinity where the page scrolls. */
  height: number
  maps: number
  view: 'map' | 'graph' | 'both'
  /** A sentence stands below a map. */
  warned: boolean
  /** Queries and keys are the same tokens, so that rows of the graph can stand beside rows of the map. */
  aligned?: boolean
  /** The graph runs along the text, from left to right: it stands below the map. */
  along?: boolean
  /** The graph is drawn over an image, which wants as much room as the map. */
  pictured?: boolean
}

/** Room of the graph; `top` and `pitch` put the rows of its columns beside those of the map. */
export interface GraphRoom {
  width: number
  height: number
  top: number
  pitch: number
  /** Width of a column of tokens. */
  column: number
  characters: number
}

interface HeadLayout {
  /** The graph stands beside the map, not below. */
  beside: boolean
  map: MapLayout
  graph: GraphRoom
  /** Width of each of several columns; 0 where there is one. */
  column: number
}

const CHARACTERS = 9
const GAP = 28
/** Title above a map and legend below it. */
const AROUND = 76
const WARNING = 44
const GRAPH_WIDTH = 228
/** A map smaller than this is not worth standing beside the graph. */
const LEAST_MAP = 330
const LARGEST_CELL = 60
const SCROLLBAR = 10
const TWO_LINES = 416
/** From row to row of a column. */
const PITCH = 18
/** Of two maps side by side, the strip below them in which their graphs stand. */
const STRIP = 220
/** The line of controls above a graph. */
const CONTROLS = 26
/** The line that says how much of a graph is on screen. */
const PART = 20
/** Several maps stand one below the other in less. */
const NARROW = 560

export function headLayout(labels: readonly string[], room: Room): HeadLayout {
  // As wide as the longest label may be, whatever the text: the map's corner stays where it is.
  const label = labelWidth(CHARACTERS) + 8
  const beside =
    room.view === 'both' && !room.along && room.maps === 1 && room.width >= label + LEAST_MAP + GAP + GRAPH_WIDTH
  const side = mapSide(labels.length, label, room, beside)
  const map = { left: label, top: label, side, characters: CHARACTERS }
  const column =
    room.maps > 1 && room.width >= NARROW ? Math.floor((room.width - GAP * (room.maps - 1)) / room.maps) : 0
  const graph = graphLayout(labels.length, label, column > 0 ? { ...room, width: column } : room, beside, side)
  return { beside, map, graph, column }
}

function mapSide(
  n: number,
  label: number,
  { width, height, maps, view, warned, along, pictured }: Room,
  beside: boolean,
): number {
  const graph = beside ? Math.max(GRAPH_WIDTH, width * (pictured ? 0.45 : 0.29)) + GAP : 0
  const across = (width - graph - GAP * (maps - 1)) / (width < NARROW ? 1 : maps) - label - 2
  // Side by side, the graph stands below and keeps a strip of its own.
  const below =
    view === 'both' && !beside
      ? Math.max(maps > 1 ? STRIP : 190, along && Number.isFinite(height) ? height * 0.42 : 0)
      : 0
  const down = Number.isFinite(height) ? height - label - AROUND - (warned ? WARNING : 0) - below : 620
  const side = Math.max(120, Math.floor(Math.min(across, down, n * LARGEST_CELL)))
  // Equal cells where they can be seen one by one.
  return side / n >= 4 ? Math.floor(side / n) * n : side
}

function graphLayout(n: number, label: number, room: Room, beside: boolean, side: number): GraphRoom {
  const cell = side / n
  const aligned = beside && room.aligned !== false && cell >= LABEL_HEIGHT
  const wide = beside ? room.width - side - label - GAP - 2 : Math.min(room.width, room.along ? room.width : 560)
  // Controls that take two lines reach into the room above the columns.
  const top = aligned ? label : wide < TWO_LINES ? 50 : 26
  const free = graphHeight(label, room, beside, side)
  // Rows move closer where all of them are then on screen.
  const close = Math.min(PITCH, Math.floor((free - top - 2) / n))
  // Of a strip below two maps every row counts.
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
      characters: CHARACTERS,
    }
  // Whole rows only, so that no name is cut in half.
  const height = content <= free ? content : Math.floor(top + Math.floor((free - PART - top) / pitch) * pitch)
  const width = Math.floor(wide) - (content > height ? SCROLLBAR : 0)
  return { width, height, top, pitch, column: label - 4, characters: CHARACTERS }
}

function graphHeight(
  label: number,
  { height, view, warned, along, pictured }: Room,
  beside: boolean,
  side: number,
): number {
  if (!Number.isFinite(height)) return along || pictured ? 480 : 900
  return Math.max(
    150,
    beside || view === 'graph' ? height - CONTROLS : height - side - label - AROUND - (warned ? WARNING : 0) - 34,
  )
}
