/** Layout of the window: the grid of heads, the open head, and its numbers. All sizes in pixels. */
interface FrameRoom {
  width: number
  /** Infinity if the page scrolls. */
  height: number
  layers: number
  heads: number
}

interface FrameLayout {
  /** Numbers are below the grid if few layers leave space; otherwise in a column of their own. */
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
const WORDS = 210
const LEAST_CELL = 16
const LARGEST_CELL = 44
const LEAST_LEFT = 320
/** From this width on everything fits on one screen; below, the page scrolls. */
export const WIDE = 1100
const NARROW = 640

/** Depends on window and model only, so that another text moves nothing. */
export function frameLayout(room: FrameRoom): FrameLayout {
  if (room.width < NARROW) return placed(room, false, cellFor(room.width - ASIDE, room.heads, 24))
  if (room.width < WIDE) return placed(room, true, cellFor(room.width * 0.42 - ASIDE, room.heads, LEAST_CELL))
  const generous = Math.max(LEAST_CELL, cellFor(room.width * 0.365 - ASIDE, room.heads, LEAST_CELL))
  if (gridHeight(room, generous) + TOKENS + WORDS <= room.height) return placed(room, true, generous)
  const across = cellFor(room.width * 0.32 - ASIDE, room.heads, LEAST_CELL)
  const down = Math.floor((room.height - AROUND - TOKENS) / room.layers) - CELL_GAP
  return placed(room, false, Math.max(LEAST_CELL, Math.min(across, down)))
}

const cellFor = (width: number, count: number, least: number) =>
  Math.max(least, Math.min(LARGEST_CELL, Math.floor((width + CELL_GAP) / count) - CELL_GAP))

const gridHeight = ({ layers }: FrameRoom, cell: number) => layers * (cell + CELL_GAP) + AROUND

/** The open head has more than half of the window. */
const MOST_LEFT = 0.45
const LEAST_GRID = 200
/** Head numbers and the ring around the open head scroll with the grid. */
const NUMBERS = 24

function placed({ width, height, heads }: FrameRoom, beneath: boolean, cell: number): FrameLayout {
  const wanted = heads * (cell + CELL_GAP) - CELL_GAP + ASIDE
  const left = Math.max(LEAST_LEFT, width < NARROW ? wanted : Math.min(wanted, Math.floor(width * MOST_LEFT)))
  // Whole rows only, so that no head is cut.
  const rows = Math.floor(Math.max(LEAST_GRID, height - AROUND - TOKENS) / (cell + CELL_GAP))
  return { beneath, cell, left, grid: NUMBERS + rows * (cell + CELL_GAP) }
}
