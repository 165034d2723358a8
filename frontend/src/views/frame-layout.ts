/** Layout of the window: the grid of heads, the open head, and its numbers. All sizes in pixels. */
interface FrameRoom {
  width: number
  /** Infinity if the page scrolls. */
  height: number
  /** Rows and columns of the grid. */
  layers: number
  heads: number
  /** A range of layers can be chosen. */
  deep?: boolean
  /** Width of the left column, if the reader has chosen one. */
  wanted?: number
}

interface FrameLayout {
  /** Numbers are below the grid; otherwise, in one column, below the open head. */
  beneath: boolean
  /** Side of a head in the grid. */
  cell: number
  /** Width of the left column, in which a wider grid scrolls. */
  left: number
  /** The largest height of the grid, in which a higher one scrolls. Infinity if the page scrolls. */
  grid: number
}

export const CELL_GAP = 2
/** Layer numbers, the ring around the open head, and the padding of the column. */
const ASIDE = 28 + 4 + 38
/** Title, search box, head numbers and legend of the grid. */
const AROUND = 124
const TOKENS = 140
const WORDS = 150
/** The line above the grid in which layers are chosen. */
const RANGE = 28
/** A head may be this small if all of them are visible then. */
const LEAST_CELL = 16
/** Sides of a head where the grid has to scroll anyway. */
const LEGIBLE: readonly [number, number] = [24, 28]
const LARGEST_CELL = 44
/** A few heads are larger where that does not widen their column. */
const LARGEST_OF_FEW = 54
const LEAST_LEFT = 372
/** From this width on everything fits on one screen; below, the page scrolls. */
export const WIDE = 1100
const NARROW = 640
/** Where the page scrolls, the grid is at most this high unless its heads would be hard to see. */
const MOST_GRID = 420
/** Of the width, so that two maps have room beside each other. */
const SHARE = 0.34

/** Depends on window, model and the reader's choice only, so that another text moves nothing. */
export function frameLayout(room: FrameRoom): FrameLayout {
  const { width, layers, heads } = room
  const side = (width: number) => Math.floor((width + CELL_GAP) / heads) - CELL_GAP
  // Where the page scrolls, the open head is below the grid and must not be far.
  const few = Number.isFinite(room.height) ? Math.min(LARGEST_OF_FEW, side(LEAST_LEFT - ASIDE)) : 0
  const cellFor = (width: number) => Math.min(Math.max(LARGEST_CELL, few), side(width))
  if (width < NARROW) return placed(room, false, Math.max(LEGIBLE[0], cellFor(width - ASIDE)))
  const [low, high] = leftRange(width)
  const wanted = room.wanted && Math.min(high, Math.max(low, room.wanted))
  const across = cellFor((wanted ?? width * (width < WIDE ? 0.42 : SHARE)) - ASIDE)
  const whole = Math.min(
    across,
    Math.floor((Number.isFinite(room.height) ? roomFor(room) : MOST_GRID) / layers) - CELL_GAP,
  )
  const layout = placed(room, true, whole >= LEAST_CELL ? whole : Math.max(LEGIBLE[0], Math.min(LEGIBLE[1], across)))
  return wanted ? { ...layout, left: wanted } : layout
}

/** How narrow and how wide the left column can be made. */
export const leftRange = (width: number): [low: number, high: number] => [240, Math.floor(width * 0.6)]

/** The height that is left for the grid. */
const roomFor = ({ height, deep }: FrameRoom) => height - AROUND - TOKENS - WORDS - (deep ? RANGE : 0)

/** The open head has more than half of the window. */
const MOST_LEFT = 0.45
const LEAST_GRID = 200
const MOST_ROWS = 16
/** Head numbers and the ring around the open head scroll with the grid. */
const NUMBERS = 24

function placed(room: FrameRoom, beneath: boolean, cell: number): FrameLayout {
  const { width, heads } = room
  const wanted = heads * (cell + CELL_GAP) - CELL_GAP + ASIDE
  const left = Math.max(LEAST_LEFT, width < NARROW ? wanted : Math.min(wanted, Math.floor(width * MOST_LEFT)))
  // Whole rows only, so that no head is cut.
  const most = room.height === Number.POSITIVE_INFINITY ? MOST_ROWS : Number.POSITIVE_INFINITY
  const rows = Math.min(most, Math.floor(Math.max(LEAST_GRID, roomFor(room)) / (cell + CELL_GAP)))
  return { beneath, cell, left, grid: NUMBERS + rows * (cell + CELL_GAP) }
}
