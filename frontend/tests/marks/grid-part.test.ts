import { describe, expect, it } from 'vitest'
import { firstBelow, visibleBox } from '../../src/lib/drawing/visible'
import { thumbnailSide } from '../../src/lib/maths/matrix'
import { drawnBox, type GridLayout, partWithin } from '../../src/marks/grid-painter'

const layout: GridLayout = { layers: 48, heads: 48, cell: 22, gap: 2 }

describe('the part of a grid on screen', () => {
  it('is seen through the window and all that scrolls', () => {
    const screen = { left: 0, top: 0, right: 1440, bottom: 900 }
    const holder = { left: 20, top: 250, right: 620, bottom: 700 }
    const box = visibleBox({ left: 50 - 480, top: 270 - 240 }, [screen, holder])
    expect(box.left).toBeLessThan(20 - 50 + 480)
    expect(box.right).toBeGreaterThan(620 - 50 + 480)
    expect(box.top).toBeLessThan(250 - 270 + 240)
    expect(box.bottom).toBeGreaterThan(700 - 270 + 240)
    // A few more pixels of scrolling change nothing.
    expect(visibleBox({ left: 50 - 480, top: 270 - 243 }, [screen, holder])).toEqual(box)
  })

  it('holds every cell that the box touches, and no other', () => {
    const { rows, columns } = partWithin(layout, { left: 96, top: 192, right: 288, bottom: 300 })
    expect([rows, columns]).toEqual([
      [8, 13],
      [4, 12],
    ])
    const part = partWithin(layout, { left: -96, top: 1056, right: 5000, bottom: 1248 })
    expect(part).toEqual({ rows: [44, 48], columns: [0, 48] })
    expect(drawnBox({ ...layout, part })).toEqual([0, 1056, 1150, 94])
  })

  it('is empty if the grid is scrolled away', () => {
    const part = partWithin(layout, { left: 0, top: -960, right: 5000, bottom: -96 })
    expect(part.rows).toEqual([0, 0])
    expect(drawnBox({ ...layout, part })).toEqual([0, 0, 1150, 0])
  })

  it('is all of it on paper', () => {
    expect(drawnBox(layout)).toEqual([0, 0, 1150, 1150])
  })
})

describe('the side of thumbnails', () => {
  it('lets the first picture of any model arrive soon', () => {
    expect(thumbnailSide(144)).toBe(32)
    expect(thumbnailSide(0)).toBe(32)
    for (const heads of [400, 1024, 2304]) {
      expect(heads * thumbnailSide(heads) ** 2).toBeLessThanOrEqual(300_000)
      expect(thumbnailSide(heads)).toBeGreaterThan(10)
    }
  })
})

describe('elements in lines', () => {
  const lines = Array.from({ length: 40 }, (_, i) => ({
    getBoundingClientRect: () => ({ bottom: 20 * (1 + Math.floor(i / 4)) }) as DOMRect,
  }))

  it('are found by their height', () => {
    expect([-5, 0, 19, 20, 100, 199, 200, 500].map((height) => firstBelow(lines, height))).toEqual([
      0, 0, 0, 4, 20, 36, 40, 40,
    ])
    expect(firstBelow([], 3)).toBe(0)
  })
})
