import { describe, expect, it } from 'vitest'
import { CELL_GAP, frameLayout } from '../../src/views/frame-layout'

const room = { width: 1440, height: 750, layers: 6, heads: 12 }

describe('frameLayout', () => {
  it('draws six layers large and puts the words below them', () => {
    const { beneath, cell, left } = frameLayout(room)
    expect(beneath).toBe(true)
    expect(cell).toBeGreaterThanOrEqual(36)
    expect(left).toBeLessThan(1440 * 0.37)
  })

  it.each([
    [12, 12],
    [30, 9],
    [24, 16],
  ])('fits %i layers of %i heads and gives the words their own column', (layers, heads) => {
    const { beneath, cell, left } = frameLayout({ ...room, layers, heads })
    expect(beneath).toBe(false)
    expect(layers * (cell + CELL_GAP)).toBeLessThanOrEqual(750)
    expect(heads * (cell + CELL_GAP)).toBeLessThanOrEqual(left)
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
    expect(cell).toBeGreaterThanOrEqual(16)
    expect(grid).toBeLessThan(750 - 140)
    expect(frameLayout({ ...room, width: 900, height: Number.POSITIVE_INFINITY, layers, heads }).left).toBeLessThan(450)
  })

  it('keeps heads large enough to hit where the grid scrolls', () => {
    expect(frameLayout({ ...room, width: 390, height: Number.POSITIVE_INFINITY }).cell).toBeGreaterThanOrEqual(24)
  })
})
