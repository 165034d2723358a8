import { describe, expect, it } from 'vitest'
import { PER_PAGE, pageOf, SMALL_GAP, SMALL_TITLE, smallLayout } from '../../src/views/head/small-layout'

describe('small maps', () => {
  it.each([1, 2, 5, 9, 12])('%i of them fit into their room, as large as any number of columns allows', (count) => {
    const [width, height] = [700, 520]
    const { columns, side } = smallLayout(count, width, height)
    const rows = Math.ceil(count / columns)
    expect(columns * side + (columns - 1) * SMALL_GAP).toBeLessThanOrEqual(width)
    expect(rows * (side + SMALL_TITLE) + (rows - 1) * SMALL_GAP).toBeLessThanOrEqual(height)
    const larger = side + 2
    const fits = Array.from({ length: count }, (_, i) => i + 1).filter((across) => {
      const down = Math.ceil(count / across)
      return (
        across * larger + (across - 1) * SMALL_GAP <= width &&
        down * (larger + SMALL_TITLE) + (down - 1) * SMALL_GAP <= height
      )
    })
    expect(larger > 320 || fits.length === 0).toBe(true)
  })

  it('is never too small to see, and scrolls instead', () => {
    expect(smallLayout(12, 200, 200).side).toBeGreaterThanOrEqual(88)
    expect(smallLayout(12, 360, Number.POSITIVE_INFINITY)).toEqual({ columns: 2, side: 172 })
  })

  it('shows the page of the open head', () => {
    const items = Array.from({ length: 30 }, (_, i) => i)
    expect(pageOf(items, 13)).toEqual({ page: 1, pages: 3, items: items.slice(PER_PAGE, 2 * PER_PAGE) })
    expect(pageOf(items, -1).page).toBe(0)
  })
})
