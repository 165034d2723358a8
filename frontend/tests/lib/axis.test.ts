import { describe, expect, it } from 'vitest'
import { random } from '../../gallery/maps'
import type { Token } from '../../src/lib/data/analysis'
import {
  boxTokens,
  firstToken,
  groupMap,
  highlightPlaces,
  tokenAxis,
  wholePlaces,
  wordAxis,
} from '../../src/lib/maths/axis'
import { NOTHING } from '../../src/lib/maths/highlight'
import type { Matrix } from '../../src/lib/maths/matrix'
import { groupValue, rowMean } from '../../src/lib/maths/matrix'

const token = (text: string, word: number | null, [start, end]: [number, number], segment = 0): Token => ({
  text,
  id: 0,
  start,
  end,
  word,
  segment,
  kind: word === null ? 'special' : 'word',
})
/** [CLS] un believ able the [SEP]: the word in the middle is in three pieces. */
const TOKENS = [
  token('[CLS]', null, [0, 0]),
  token('un', 0, [0, 2]),
  token('believ', 0, [2, 8]),
  token('able', 0, [8, 12]),
  token('the', 1, [13, 16]),
  token('[SEP]', null, [0, 0]),
]
const words = wordAxis(TOKENS)

const noise = (rows: number, cols: number, exact = true): Matrix => ({
  data: Float32Array.from({ length: rows * cols }, random(3)),
  rows,
  cols,
  exact,
})

describe('wordAxis', () => {
  it('joins the pieces of a word and leaves special tokens alone', () => {
    expect(words.labels).toEqual(['[CLS]', 'unbelievable', 'the', '[SEP]'])
    expect([...words.start]).toEqual([0, 1, 4, 5, 6])
    expect([...words.of]).toEqual([0, 1, 1, 1, 2, 3])
    expect(words.special).toEqual([true, false, false, true])
  })

  it('keeps words of two texts apart and names bytes of one sign once', () => {
    const pair = [token('a', 0, [0, 1]), token('b', 0, [0, 1], 1)]
    expect(wordAxis(pair).labels).toEqual(['a', 'b'])
    const bytes = [token('\u96ea', 0, [0, 1]), token('\u96ea', 0, [0, 1]), token('d', 0, [2, 3])]
    expect(wordAxis(bytes).labels).toEqual(['\u96ea d'])
  })
})

describe('groupMap', () => {
  it('sums over the keys of a word and takes the mean over its queries', () => {
    const map = noise(6, 6)
    const grouped = groupMap(map, words, words)
    const at = (v: number, w: number) => {
      let sum = 0
      for (let q = words.start[v]; q < words.start[v + 1]; q++)
        for (let k = words.start[w]; k < words.start[w + 1]; k++) sum += map.data[q * 6 + k]
      return sum / (words.start[v + 1] - words.start[v])
    }
    expect([grouped.rows, grouped.cols]).toEqual([4, 4])
    for (let v = 0; v < 4; v++) for (let w = 0; w < 4; w++) expect(grouped.data[v * 4 + w]).toBeCloseTo(at(v, w), 6)
  })

  it('keeps row sums, and has no reading where a piece has none', () => {
    const map = noise(6, 6)
    map.data.fill(Number.NaN, 12, 18)
    const grouped = groupMap(map, words, words)
    const sum = (data: Float32Array) => data.reduce((total, value) => total + value, 0)
    expect(sum(grouped.data.subarray(0, 4))).toBeCloseTo(sum(map.data.subarray(0, 6)), 5)
    expect(Array.from(grouped.data.subarray(4, 8)).every(Number.isNaN)).toBe(true)
  })

  it('is the map itself when every token is a word', () => {
    const [map, axis] = [noise(6, 6), tokenAxis(TOKENS)]
    expect(groupMap(map, axis, axis).data).toEqual(map.data)
  })

  it('puts the cells of a thumbnail where the words will be', () => {
    const thumbnail: Matrix = { data: Float32Array.of(0.1, 0.2, 0.3, 0.4), rows: 2, cols: 2, exact: false }
    const grouped = groupMap(thumbnail, words, words)
    expect(grouped.exact).toBe(false)
    expect(grouped.data[0]).toBeCloseTo(0.1)
    // The word in pieces reaches over the middle, so that it shows the larger of both cells.
    expect(grouped.data[1]).toBeCloseTo(0.2)
    expect(grouped.data[15]).toBeCloseTo(0.4)
  })
})

describe('what is lit', () => {
  it('goes from tokens to words and back', () => {
    const lit = highlightPlaces(words, words, { queries: [2], keys: [4, 5], box: { queries: [2, 5], keys: null } })
    expect(lit).toEqual({ queries: [1], keys: [2, 3], box: { queries: [1, 3], keys: null } })
    expect(highlightPlaces(words, words, NOTHING)).toEqual(NOTHING)
    expect(boxTokens(words, words, { queries: [1, 3], keys: [0, 1] })).toEqual({ queries: [1, 5], keys: [0, 1] })
    expect([firstToken(words, 1), firstToken(words, null)]).toEqual([1, null])
    expect(wholePlaces(words, [2, 5])).toEqual([1, 2, 3, 5])
  })

  it('reads several tokens as one exactly as a map of words does', () => {
    const map = noise(6, 6)
    const grouped = groupMap(map, words, words)
    expect(groupValue(map, wholePlaces(words, [1]), [4])).toBeCloseTo(grouped.data[1 * 4 + 2], 6)
    expect(groupValue(map, [4], wholePlaces(words, [3]))).toBeCloseTo(grouped.data[2 * 4 + 1], 6)
    expect([...rowMean(map, [])].every(Number.isNaN)).toBe(true)
  })
})
