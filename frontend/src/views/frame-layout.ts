/** Layout of the window: the grid of heads, the open head, and its numbers. All sizes in pixels. */
interface FrameRoom {
  width: number
  /** Infinity if the page scrolls. */
  height: number
  layers: number
  heads: number
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
const LEAST_CELL = 16
const LARGEST_CELL = 44
const LEAST_LEFT = 320
/** From this width on everything fits on one screen; below, the page scrolls. */
export const WIDE = 1100
const NARROW = 640
/** Of the width, so that two maps have room beside each other. */
const SHARE = 0.34

/** Depends on window, model and the reader's choice only, so that another text moves nothing. */
export function frameLayout(room: FrameRoom): FrameLayout {
  const { width, height, layers, heads } = room
  if (width < NARROW) return placed(room, false, cellFor(width - ASIDE, heads, 24))
  const [low, high] = leftRange(width)
  const wanted = room.wanted && Math.min(high, Math.max(low, room.wanted))
  const across = cellFor((wanted ?? width * (width < WIDE ? 0.42 : SHARE)) - ASIDE, heads, LEAST_CELL)
  const down = Math.floor((height - AROUND - TOKENS - WORDS) / layers) - CELL_GAP
  const layout = placed(room, true, Math.max(LEAST_CELL, Math.min(across, down)))
  return wanted ? { ...layout, left: wanted } : layout
}

/** How narrow and how wide the left column can be made. */
export const leftRange = (width: number): [low: number, high: number] => [240, Math.floor(width * 0.6)]

const cellFor = (width: number, count: number, least: number) =>
  Math.max(least, Math.min(LARGEST_CELL, Math.floor((width + CELL_GAP) / count) - CELL_GAP))

/** The open head has more than half of the window. */
const MOST_LEFT = 0.45
const LEAST_GRID = 200
/** Head numbers and the ring around the open head scroll with the grid. */
const NUMBERS = 24

function placed({ width, height, heads }: FrameRoom, beneath: boolean, cell: number): FrameLayout {
  const wanted = heads * (cell + CELL_GAP) - CELL_GAP + ASIDE
  const left = Math.max(LEAST_LEFT, width < NARROW ? wanted : Math.min(wanted, Math.floor(width * MOST_LEFT)))
  // Whole rows only, so that no head is cut.
  const rows = Math.floor(Math.max(LEAST_GRID, height - AROUND - TOKENS - WORDS) / (cell + CELL_GAP))
  return { beneath, cell, left, grid: NUMBERS + rows * (cell + CELL_GAP) }
}
