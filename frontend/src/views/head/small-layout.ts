/** Layout of several small maps of equal size. All sizes in pixels. */

/** Maps on one page. */
export const PER_PAGE = 12
const SMALLEST = 88
const LARGEST = 320
/** Side of a map on a page that scrolls. */
const SCROLLED = 168
export const SMALL_GAP = 16
/** The line above a map. */
export const SMALL_TITLE = 22

interface SmallLayout {
  columns: number
  side: number
}

/** The columns with which so many maps are largest; `height` is infinite if the page scrolls. */
export function smallLayout(count: number, width: number, height: number): SmallLayout {
  const across = (columns: number) => Math.floor((width - SMALL_GAP * (columns - 1)) / columns)
  if (!Number.isFinite(height)) {
    const columns = Math.max(1, Math.min(count, Math.round(width / (SCROLLED + SMALL_GAP))))
    return { columns, side: Math.min(LARGEST, across(columns)) }
  }
  const layouts = Array.from({ length: count }, (_, i) => {
    const [columns, rows] = [i + 1, Math.ceil(count / (i + 1))]
    const down = Math.floor((height - SMALL_GAP * (rows - 1)) / rows) - SMALL_TITLE
    return { columns, side: Math.min(LARGEST, across(columns), down) }
  })
  const best = layouts.reduce((one, other) => (other.side > one.side ? other : one))
  return { ...best, side: Math.max(SMALLEST, best.side) }
}

/** The heads of one page, with the index of the page that contains the open one. */
export function pageOf<T>(items: readonly T[], open: number): { page: number; pages: number; items: T[] } {
  const page = Math.max(0, Math.floor(open / PER_PAGE))
  return {
    page,
    pages: Math.ceil(items.length / PER_PAGE),
    items: items.slice(page * PER_PAGE, (page + 1) * PER_PAGE),
  }
}
