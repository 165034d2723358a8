import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { contrast, divergingTable, luminance, packHex, type Ramp, sequentialTable } from '../../src/lib/maths/colour'
import { colourIndex, inverse, type ScaleKind, strength, ticks } from '../../src/lib/maths/scale'

const SHEET = readFileSync(join(import.meta.dirname, '../../src/app/styles.css'), 'utf8')
/** Every colour of the style sheet by name, of both themes. */
const THEMES = [...SHEET.matchAll(/:root[^{]*\{([^}]*--paper[^}]*)\}/g)].map(([, block]) =>
  Object.fromEntries([...block.matchAll(/--([\w-]+): (#\w{6});/g)].map(([, name, hex]) => [name, hex])),
)
const rampOf = (theme: Record<string, string>): Ramp => ({
  zero: theme.paper,
  more: [theme.more, theme['more-end']],
  less: [theme.less, theme['less-end']],
})
const between = (one: string, other: string) => contrast(luminance(packHex(one)), luminance(packHex(other)))
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

describe.each([
  ['light', THEMES[0], -1],
  ['dark', THEMES[1], 1],
] as const)('colours of the %s page', (_, theme, away) => {
  const sequential = sequentialTable(rampOf(theme))
  const diverging = divergingTable(rampOf(theme))

  it('begin at the page and are further from it with every step', () => {
    expect(sequential[0]).toBe(packHex(theme.paper))
    expect(diverging[128]).toBe(sequential[0])
    for (let i = 1; i < 256; i++) {
      expect(away * (luminance(sequential[i]) - luminance(sequential[i - 1]))).toBeGreaterThanOrEqual(0)
    }
  })

  it('set the strongest off from the page on both sides', () => {
    for (const end of [sequential[255], diverging[1], diverging[255]]) {
      expect(contrast(luminance(end), luminance(sequential[0]))).toBeGreaterThan(10)
    }
  })

  it('can be read as text and told from the page as marks', () => {
    for (const name of ['ink', 'muted', 'accent']) expect(between(theme[name], theme.paper), name).toBeGreaterThan(4.5)
    for (const name of ['more', 'less']) expect(between(theme[name], theme.paper), name).toBeGreaterThan(3)
  })
})
