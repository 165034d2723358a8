/** How heat maps and graph share the centre column. Pixels in, pixels out. */
import { LABEL_HEIGHT, labelWidth } from '../lib/labels'
import type { GraphLayout } from '../marks/connections-painter'
import type { MapLayout } from '../marks/heatmap-painter'

export interface Room {
  width: number
  /** Infinity where the page scrolls. */
  height: number
  maps: number
  view: 'map' | 'graph' | 'both'
}

export interface HeadLayout {
  map: MapLayout
  graph: Omit<GraphLayout, 'scroll'>
}

const CHARACTERS = 9
const GAP = 28
/** Title above a map and legend below it. */
const AROUND = 76
const GRAPH_WIDTH = 236
/** A map smaller than this is not worth standing beside the graph. */
const LEAST_MAP = 330
const LARGEST_CELL = 44

export function headLayout(labels: readonly string[], room: Room): HeadLayout {
  const label = labelWidth(labels, CHARACTERS) + 8
  const beside = room.view === 'both' && room.maps === 1 && room.width >= label + LEAST_MAP + GAP + GRAPH_WIDTH
  const side = mapSide(labels.length, label, room, beside)
  const map = { left: label, top: label, side, characters: CHARACTERS }
  return { map, graph: graphLayout(labels.length, label, room, beside, side) }
}

function mapSide(n: number, label: number, { width, height, maps, view }: Room, beside: boolean): number {
  const graph = beside ? Math.max(GRAPH_WIDTH, width * 0.29) + GAP : 0
  const across = (width - graph - GAP * (maps - 1)) / (width < 560 ? 1 : maps) - label - 2
  // Side by side, the graph stands below and keeps a strip of its own.
  const below = view === 'both' && !beside ? 190 : 0
  const down = Number.isFinite(height) ? height - label - AROUND - below : 620
  const side = Math.max(120, Math.floor(Math.min(across, down, n * LARGEST_CELL)))
  // Equal cells where they can be seen one by one.
  return side / n >= 4 ? Math.floor(side / n) * n : side
}

function graphLayout(n: number, label: number, room: Room, beside: boolean, side: number): Omit<GraphLayout, 'scroll'> {
  const { width, height, view } = room
  const cell = side / n
  const aligned = beside && cell >= LABEL_HEIGHT
  const pitch = aligned ? cell : 18
  const top = aligned ? label : 26
  const wide = beside ? width - side - label - GAP - 2 : Math.min(width, 560)
  const content = Math.ceil(top + n * pitch + 2)
  const free = Number.isFinite(height)
    ? beside || view === 'graph'
      ? height - 40
      : height - side - label - AROUND - 54
    : 620
  return {
    width: Math.floor(wide),
    height: Math.floor(Math.min(content, Math.max(150, free))),
    top,
    pitch,
    column: label - 4,
    characters: CHARACTERS,
  }
}
