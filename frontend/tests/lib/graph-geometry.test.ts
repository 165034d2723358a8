import { describe, expect, it } from 'vitest'
import {
  arcs,
  columns,
  type GraphGeometry,
  rows,
  tokenAt,
  tokensWithin,
  trace,
} from '../../src/lib/maths/graph-geometry'
import { isWide, textWidth } from '../../src/lib/text/labels'

const WORDS = 'the boats lay by the river bank while the bank in town kept the money'.split(' ')
const FRAME = { width: 240, height: 300 }
const GEOMETRIES: GraphGeometry[] = [
  columns([WORDS.length, WORDS.length], { width: 240, top: 26, pitch: 18, column: 70 }),
  rows(WORDS, WORDS, FRAME),
  arcs(WORDS, FRAME, true),
  arcs(WORDS, FRAME, false),
]

/** Every point that a curve's handles name, and its ends. */
function traced(geometry: GraphGeometry, q: number, k: number) {
  const points: [number, number][] = []
  trace(
    {
      moveTo: (x, y) => points.push([x, y]),
      bezierCurveTo: (...at) => points.push([at[0], at[1]], [at[2], at[3]], [at[4], at[5]]),
    },
    geometry,
    q,
    k,
  )
  return points
}

describe.each(GEOMETRIES)('geometry of $kind', (geometry) => {
  it('finds every token where it stands', () => {
    for (let i = 0; i < WORDS.length; i++) {
      expect(tokenAt(geometry, geometry.queries.x[i], geometry.queries.y[i])[0]).toBe(i)
      expect(tokenAt(geometry, geometry.keys.x[i], geometry.keys.y[i])[1]).toBe(i)
    }
  })

  it('keeps tokens and curves inside the drawing', () => {
    for (let q = 0; q < WORDS.length; q++) {
      for (let k = 0; k < WORDS.length; k++) {
        if (geometry === GEOMETRIES[3] && k > q) continue
        const [from, a, b, to] = traced(geometry, q, k)
        // The curve's own extreme, not that of its handles.
        for (let t = 0; t <= 1; t += 0.25) {
          const at = (i: 0 | 1) =>
            (1 - t) ** 3 * from[i] + 3 * (1 - t) ** 2 * t * a[i] + 3 * (1 - t) * t ** 2 * b[i] + t ** 3 * to[i]
          expect(at(0)).toBeGreaterThanOrEqual(0)
          expect(at(0)).toBeLessThanOrEqual(geometry.width)
          expect(at(1)).toBeGreaterThanOrEqual(0)
          expect(at(1)).toBeLessThanOrEqual(geometry.height)
        }
      }
    }
  })

  it('names the tokens of a window', () => {
    const length = geometry.kind === 'rows' ? geometry.width : geometry.height
    expect(tokensWithin(geometry, 0, length)).toEqual([0, WORDS.length])
    const [first, last] = tokensWithin(geometry, length / 2, length / 4)
    expect(first).toBeGreaterThan(0)
    expect(last).toBeLessThan(WORDS.length)
    expect(last).toBeGreaterThan(first)
  })
})

describe('a running text', () => {
  it('is read left to right in lines that do not overlap', () => {
    const { x, y, half } = arcs(WORDS, FRAME, true).queries
    for (let i = 1; i < WORDS.length; i++) {
      if (y[i] === y[i - 1]) expect(x[i] - half[i]).toBeGreaterThanOrEqual(x[i - 1] + half[i - 1] - 0.01)
      else expect(y[i]).toBeGreaterThan(y[i - 1])
    }
  })

  it('draws back above the line and ahead below it', () => {
    const geometry = arcs(WORDS, FRAME, true)
    const line = geometry.queries.y[0]
    expect(traced(geometry, 2, 0).every(([, y]) => y < line)).toBe(true)
    expect(traced(geometry, 0, 2).every(([, y]) => y > line)).toBe(true)
    expect(traced(geometry, 1, 1)).not.toHaveLength(0)
  })

  it('keeps a token that is wider than the line inside of it', () => {
    const { x, half } = arcs(['x'.repeat(200)], FRAME, true).queries
    expect(x[0] + half[0]).toBeLessThanOrEqual(FRAME.width)
  })
})

it('puts one text above itself and lets two texts each have their own places', () => {
  const [one, two] = [rows(WORDS, WORDS, FRAME), rows(WORDS, [...WORDS].reverse(), FRAME)]
  expect(one.queries.x).toEqual(one.keys.x)
  expect(two.queries.x).not.toEqual(two.keys.x)
})

it('tells scripts whose signs are as wide as high', () => {
  expect(isWide(['\u6211', 'snow', '\u96ea'])).toBe(false)
  expect(isWide(['\u6211', '\u559c\u6b22', '\u96ea', '\u548c', '\u5c71'])).toBe(true)
  expect(isWide(WORDS)).toBe(false)
  expect(isWide(['1', '.'])).toBe(false)
  expect(textWidth('\u96ea')).toBeGreaterThan(textWidth('a'))
})
