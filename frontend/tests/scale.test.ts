import { describe, expect, it } from 'vitest'
import { contrast, divergingTable, luminance, sequentialTable } from '../src/lib/colour'
import { colourIndex, inverse, type ScaleKind, strength, ticks } from '../src/lib/scale'

const RAMP = {
  zero: '#fbfaf6',
  more: ['#3f74c0', '#0b1c47'] as [string, string],
  less: ['#d97b1f', '#4f1f00'] as [string, string],
}
const kinds: ScaleKind[] = ['linear', 'sqrt', 'log']

describe('scale', () => {
  it.each(kinds)('%s runs from nothing to everything and back', (kind) => {
    expect(strength(0, kind)).toBe(0)
    expect(strength(1, kind)).toBe(1)
    expect(strength(2, kind)).toBe(1)
    for (const at of [0.1, 0.5, 0.9]) expect(strength(inverse(at, kind), kind)).toBeCloseTo(at, 10)
  })

  it('puts zero of a signed map on the neutral colour, whatever the scale', () => {
    for (const kind of kinds) {
      expect(colourIndex(0, { kind, signed: true, max: 0.4 })).toBe(128)
      expect(colourIndex(0.4, { kind, signed: true, max: 0.4 })).toBe(255)
      expect(colourIndex(-0.4, { kind, signed: true, max: 0.4 })).toBe(1)
      expect(colourIndex(0, { kind, signed: false, max: 0 })).toBe(0)
    }
  })

  it('labels both ends and zero', () => {
    expect(ticks({ kind: 'sqrt', signed: false, max: 1 }).map(({ value }) => value)).toEqual([0, 0.25, 1])
    expect(ticks({ kind: 'linear', signed: true, max: 2 })).toEqual([
      { at: 0, value: -2 },
      { at: 0.5, value: 0 },
      { at: 1, value: 2 },
    ])
  })
})

describe('colour tables', () => {
  const sequential = sequentialTable(RAMP)
  const diverging = divergingTable(RAMP)

  it('begin at the page and grow darker with every step', () => {
    expect(sequential[0].toString(16)).toBe('fff6fafb')
    expect(diverging[128]).toBe(sequential[0])
    for (let i = 1; i < 256; i++) expect(luminance(sequential[i])).toBeLessThanOrEqual(luminance(sequential[i - 1]))
  })

  it('set the strongest off from the page on both sides', () => {
    for (const end of [sequential[255], diverging[1], diverging[255]]) {
      expect(contrast(luminance(end), luminance(sequential[0]))).toBeGreaterThan(10)
    }
  })
})
