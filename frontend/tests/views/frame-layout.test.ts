import { describe, expect, it } from 'vitest'
import { CELL_GAP, frameLayout, leftRange } from '../../src/views/frame-layout'

const room = { width: 1440, height: 750, layers: 6, heads: 12 }

describe('frameLayout', () => {
  it('draws six layers large and puts the words below them', () => {
    const { beneath, cell, left } = frameLayout(room)
    expect(beneath).toBe(true)
    expect(cell).toBeGreaterThanOrEqual(32)
    expect(left).toBeLessThan(1440 * 0.35)
  })

  it.each([
    [4, 4],
    [6, 12],
    [12, 12],
    [30, 9],
    [24, 16],
  ])('fits %i layers of %i heads, with the words below them in the same column', (layers, heads) => {
    const { beneath, cell, left, grid } = frameLayout({ ...room, layers, heads })
    expect(beneath).toBe(true)
    expect(grid).toBeLessThanOrEqual(750 - 140 - 150)
    expect(heads * (cell + CELL_GAP)).toBeLessThanOrEqual(left)
  })

  it('draws few heads larger where the height allows it, and leaves room for tokens and words', () => {
    const few = { ...room, heads: 4 }
    expect(frameLayout({ ...few, height: 820 }).cell).toBeGreaterThan(44)
    expect(frameLayout({ ...few, height: 820 }).left).toBe(frameLayout({ ...few, height: 600 }).left)
    expect(frameLayout({ ...room, width: 1920, height: 1000 }).cell).toBe(44)
    expect(frameLayout({ ...few, height: 600 }).grid).toBeLessThanOrEqual(600 - 140 - 150)
    expect(frameLayout({ ...few, width: 390, height: Number.POSITIVE_INFINITY }).cell).toBe(44)
  })

  it('leaves the tokens in view where the page scrolls, and space for the controls of a narrow grid', () => {
    const twelve = { width: 1024, height: Number.POSITIVE_INFINITY, layers: 12, heads: 8 }
    expect(12 * (frameLayout(twelve).cell + CELL_GAP)).toBeLessThanOrEqual(420)
    expect(frameLayout({ ...twelve, layers: 6 }).cell).toBe(43)
    expect(frameLayout({ ...room, layers: 12, heads: 8 }).left).toBeGreaterThanOrEqual(372)
  })

  it('follows the width that the reader wants for the left column, within bounds', () => {
    expect(frameLayout({ ...room, wanted: 400 }).left).toBe(400)
    expect(frameLayout({ ...room, wanted: 300 }).cell).toBeLessThan(frameLayout({ ...room, wanted: 480 }).cell)
    const [low, high] = leftRange(1440)
    expect(frameLayout({ ...room, wanted: 10 }).left).toBe(low)
    expect(frameLayout({ ...room, wanted: 5000 }).left).toBe(high)
    expect(frameLayout({ ...room, width: 390, wanted: 300 }).left).toBe(frameLayout({ ...room, width: 390 }).left)
  })

  it.each([1366, 1440, 1920])('leaves the open head most of a window %i wide', (width) => {
    expect(frameLayout({ ...room, width }).left).toBeLessThan(width * 0.4)
  })

  it.each([
    [32, 32],
    [36, 36],
    [80, 64],
  ])('lets %i layers of %i heads scroll in their column', (layers, heads) => {
    const { cell, left, grid } = frameLayout({ ...room, layers, heads })
    expect(left).toBeLessThanOrEqual(1440 * 0.45)
    expect(cell).toBeGreaterThanOrEqual(24)
    expect(grid).toBeLessThan(750 - 140)
    expect(frameLayout({ ...room, width: 900, height: Number.POSITIVE_INFINITY, layers, heads }).left).toBeLessThan(450)
  })

  it('draws deep models legibly, and a few of their layers larger', () => {
    const deep = { ...room, layers: 30, heads: 9, deep: true }
    const { cell, grid } = frameLayout(deep)
    expect(cell).toBe(28)
    expect(grid).toBeLessThan(frameLayout({ ...deep, deep: false }).grid)
    expect(frameLayout({ ...deep, layers: 6 }).cell).toBeGreaterThan(32)
  })

  it('keeps heads large enough to hit where the grid scrolls', () => {
    const page = { ...room, width: 390, height: Number.POSITIVE_INFINITY }
    expect(frameLayout(page).cell).toBeGreaterThanOrEqual(24)
    expect(frameLayout({ ...page, layers: 48, heads: 48 }).grid).toBeLessThan(500)
  })
})
