import { describe, expect, it } from 'vitest'
import type { Token } from '../../src/lib/data/analysis'
import { axisNames, outlined } from '../../src/lib/maths/axis-names'
import { LABEL_HEIGHT } from '../../src/lib/text/labels'

const SENTENCES = Array.from({ length: 400 }, (_, i) => `Sentence ${i} has several words, of which some are long.`)
const TEXT = SENTENCES.join(' ')

/** Pieces of at most four letters. */
function piecesOf(text: string): Token[] {
  const words = [...text.matchAll(/\w+|[^\w\s]/g)]
  return words.flatMap(({ 0: word, index }, number) =>
    (word.match(/.{1,4}/g) ?? []).map((piece, i) => {
      const start = index + 4 * i
      const kind = i > 0 ? ('subword' as const) : ('word' as const)
      return {
        text: piece,
        id: 0,
        start,
        end: start + piece.length,
        word: number,
        segment: 0,
        kind,
        box: null,
        role: null,
        pos: null,
      } as unknown as Token
    }),
  )
}

const tokens = piecesOf(TEXT)
const axis = outlined('pieces', tokens, [TEXT])
const { labels, outline } = axis
const rankOf = (place: number) => outline!.rank[place]
const named = (start: number, size: number) => axisNames(axis, start, size, 600)

describe('names along an axis', () => {
  it('are sentences from afar, then words, then pieces', () => {
    expect(named(0, 1).every(({ place, name }) => rankOf(place) === 2 && name.startsWith('Sentence '))).toBe(true)
    const near = named(0, 80 / tokens.length)
    expect(near.map(({ place }) => rankOf(place))).toContain(1)
    expect(near.every(({ place }) => rankOf(place) > 0)).toBe(true)
    const nearest = named(0, 20 / tokens.length)
    expect(nearest.map(({ name }) => name)).toEqual(labels.slice(0, nearest.length))
  })

  it('do not touch, and leave no large gap', () => {
    for (let size = 1; size * tokens.length > 10; size /= 1.3) {
      const places = named(0.31 * (1 - size), size).map(({ at }) => at)
      for (const [i, at] of places.slice(1).entries()) {
        expect(at - places[i]).toBeGreaterThanOrEqual(LABEL_HEIGHT - 1e-6)
        expect(at - places[i]).toBeLessThan(8 * LABEL_HEIGHT)
      }
    }
  })

  it('stay the same in the middle while the window moves', () => {
    const middle = (start: number) =>
      named(start, 0.02)
        .filter(({ at }) => at > 100 && at < 500)
        .map(({ place }) => place)
    const moved = new Set(named(0.4005, 0.02).map(({ place }) => place))
    expect(middle(0.4).filter((place) => !moved.has(place))).toEqual([])
  })

  it('are every few labels without an outline', () => {
    const plain = axisNames({ labels }, 0, 1, 600).map(({ place }) => place)
    expect(new Set(plain.slice(1).map((place, i) => place - plain[i])).size).toBe(1)
  })
})
