import { describe, expect, it } from 'vitest'
import { random } from '../../gallery/maps'
import type { Token } from '../../src/lib/data/analysis'
import { boxTokens, groupMap, highlightPlaces, placeSums, wholePlaces } from '../../src/lib/maths/axis'
import { groupValue, type Matrix, rowMean } from '../../src/lib/maths/matrix'
import { meanReceived } from '../../src/lib/maths/sinks'
import { cellWindow, countedPlaces, sentenceAxis, shownUnit, unitAxes, unitsOf } from '../../src/lib/maths/units'
import { sentencesOf } from '../../src/lib/text/segmentation'
import { drawnAxes, NO_SINKS } from '../../src/state/left-out'

const special = (text: string): Token => ({ text, id: 0, start: 0, end: 0, word: null, segment: 0, kind: 'special' })

/** Words and signs with their offsets, counted in characters. */
function pieces(text: string, segment = 0): Token[] {
  return [...text.matchAll(/[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu)].map((match, word) => {
    const start = Array.from(text.slice(0, match.index)).length
    return { text: match[0], id: 1, start, end: start + Array.from(match[0]).length, word, segment, kind: 'word' }
  })
}

const TEXT = 'The boat sank. \u{1f600} Nobody, it seems, was hurt! Why?'
const PAIR = 'It was old.\nThe river is deep'
const TOKENS = [special('[CLS]'), ...pieces(TEXT), special('[SEP]'), ...pieces(PAIR, 1), special('[SEP]')]

describe('sentences', () => {
  it('are found by offsets of characters, over both texts, and are named by their first words', () => {
    const { of, labels } = sentencesOf(TOKENS, [TEXT, PAIR])
    expect(labels).toEqual([
      '1 The boat sank.',
      '2 \u{1f600} Nobody, it seems,\u2026',
      '3 Why?',
      '4 It was old.',
      '5 The river is deep',
    ])
    const words = (number: number) => TOKENS.filter((_, i) => of[i] === number).map(({ text }) => text)
    expect(words(0)).toEqual(['The', 'boat', 'sank', '.'])
    expect(words(1)).toEqual(['\u{1f600}', 'Nobody', ',', 'it', 'seems', ',', 'was', 'hurt', '!'])
    expect(words(4)).toEqual(['The', 'river', 'is', 'deep'])
    expect(TOKENS.filter((_, i) => of[i] < 0).map(({ text }) => text)).toEqual(['[CLS]', '[SEP]', '[SEP]'])
  })

  it('contain masked tokens, pieces without characters, and words with the space before them', () => {
    const text = 'One two. Three'
    const word = (start: number, end: number): Token => ({ ...special(''), kind: 'word', start, end })
    const mask = { ...special('[MASK]'), start: 4, end: 7 }
    const tokens = [word(0, 3), mask, word(7, 8), word(8, 8), word(8, 14)]
    expect([...sentencesOf(tokens, [text, '']).of]).toEqual([0, 0, 0, 0, 1])
    expect([...sentencesOf([word(0, 3)], ['', '']).of]).toEqual([-1])
  })

  it('are offered if there are two, and a text of one sentence stays unfolded', () => {
    const of = (text: string) => {
      const tokens = pieces(text)
      return { tokens, keyTokens: tokens, texts: [text, ''] as const }
    }
    expect(unitsOf(of('One. Two.'))).toEqual(['pieces', 'sentences'])
    expect(unitsOf(of('One two'))).toEqual(['pieces'])
    expect(shownUnit(of('One two'), 'sentences')).toBe('pieces')
    expect(shownUnit(of('One. Two.'), 'sentences')).toBe('sentences')
  })

  it('are offered for long texts, unless they are too many, and words are not', () => {
    const of = (sentence: string, count: number) => {
      const text = Array.from({ length: count }, () => sentence).join(' ')
      const tokens = pieces(text).map((token, i) => ({ ...token, word: Math.floor(i / 2) }))
      return { tokens, keyTokens: tokens, texts: [text, ''] as const }
    }
    expect(unitsOf(of('Ann is not in.', 10))).toEqual(['pieces', 'words', 'sentences'])
    const long = of('Ann is not in.', 500)
    expect(unitsOf(long)).toEqual(['pieces', 'sentences'])
    expect(shownUnit(long, 'sentences')).toBe('sentences')
    expect(shownUnit(long, 'words')).toBe('pieces')
    expect(unitsOf(of('Why?', 1100))).toEqual(['pieces'])
    const torn = { ...long, tokens: [...long.tokens, long.tokens[0]] }
    expect(shownUnit(torn, 'sentences')).toBe('pieces')
  })
})

/** Sentences of random lengths between special tokens. */
function randomText(next: () => number): { text: string; tokens: Token[] } {
  const sentences = Array.from({ length: 2 + Math.floor(next() * 5) }, () => {
    const words = Array.from({ length: 1 + Math.floor(next() * 6) }, () => 'abcdefgh'[Math.floor(next() * 8)])
    return `B${words.join(' ')}.`
  })
  const text = sentences.join(' ')
  return { text, tokens: [special('[CLS]'), ...pieces(text), special('[SEP]')] }
}

function randomMap(n: number, causal: boolean, next: () => number): Matrix {
  const data = Float32Array.from({ length: n * n }, (_, i) => (causal && i % n > Math.floor(i / n) ? 0 : next() - 0.3))
  for (let q = 0; q < n; q++) if (next() < 0.3) data.fill(Number.NaN, q * n, q * n + n)
  return { data, rows: n, cols: n, exact: true }
}

/** Every token's group by name, written out: its sentence, or itself if it is special or left out. */
function slowGroups(text: string, tokens: Token[], left: boolean[]): number[][] {
  const groups = new Map<string, number[]>()
  for (const [i, token] of tokens.entries()) {
    const sentence = text.slice(0, token.start + 1).split('. ').length
    const name = token.kind === 'special' || left[i] ? `token ${i}` : `sentence ${sentence}`
    groups.set(name, [...(groups.get(name) ?? []), i])
  }
  return [...groups.values()]
}

function slowFold({ data, cols }: Matrix, groups: number[][]): number[][] {
  return groups.map((rows) =>
    groups.map((columns) => {
      const read = rows.filter((q) => !Number.isNaN(data[q * cols]))
      const sums = read.map((q) => columns.map((k) => data[q * cols + k]).reduce((a, b) => a + b, 0))
      return sums.reduce((a, b) => a + b, 0) / read.length
    }),
  )
}

describe('a map folded to sentences', () => {
  const seeds = Array.from({ length: 40 }, (_, i) => i + 1)

  it.each(seeds)(
    'sums keys and averages queries that have a reading, without tokens that are left out: seed %i',
    (seed) => {
      const next = random(seed)
      const { text, tokens } = randomText(next)
      const causal = next() < 0.5
      const map = randomMap(tokens.length, causal, next)
      const left = tokens.map(({ kind }) => next() < 0.1 || kind === 'special')
      const axis = sentenceAxis(tokens, [text, ''], left)
      const groups = slowGroups(text, tokens, left)
      const expected = slowFold(map, groups)
      const folded = groupMap(map, axis, axis)
      expect([folded.rows, folded.cols]).toEqual([groups.length, groups.length])
      for (const [v, row] of expected.entries())
        for (const [w, value] of row.entries()) {
          const found = folded.data[v * groups.length + w]
          if (Number.isNaN(value)) expect(found).toBeNaN()
          else expect(found).toBeCloseTo(value, 5)
          // The readout says the same as the map.
          const [rows, columns] = [wholePlaces(axis, [groups[v][0]]), wholePlaces(axis, [groups[w][0]])]
          if (!Number.isNaN(value)) expect(groupValue(map, rows, columns)).toBeCloseTo(value, 5)
          // No query sees a later sentence in a causal map.
          if (causal && Math.min(...groups[w]) > Math.max(...groups[v]) && !Number.isNaN(found)) expect(found).toBe(0)
        }
      expect([...placeSums(axis, rowMean(map, groups[0]))].length).toBe(groups.length)
      // What is left out goes as a place of its own, and takes no sentence with it.
      const drawn = drawnAxes([axis, axis], { queries: left, keys: left }, 'hide')
      const kept = groups.filter((group) => !left[group[0]])
      if (kept.length > 0 && kept.length < groups.length)
        expect(drawn.axes[1].labels).toEqual(kept.map((group) => axis.labels[axis.of[group[0]]]))
      expect(drawnAxes([axis, axis], { queries: left, keys: left }, 'mark').marked).toEqual(
        groups.map(([i]) => left[i]),
      )
    },
  )

  it.each(seeds.slice(0, 12))('gives what a sentence receives from the queries that can see it: seed %i', (seed) => {
    const next = random(100 + seed)
    const { text, tokens } = randomText(next)
    const map = randomMap(tokens.length, true, next)
    const { data, cols: n } = map
    const groups = slowGroups(text, tokens, [])
    const found = meanReceived(map, [n - 1, 0], sentenceAxis(tokens, [text, ''], []))
    for (const [place, group] of groups.entries()) {
      const sees = tokens.flatMap((_, q) => (q >= group[0] && !Number.isNaN(data[q * n]) ? [q] : []))
      const sum = sees.flatMap((q) => group.map((k) => Math.abs(data[q * n + k]))).reduce((a, b) => a + b, 0)
      expect(found[place]).toBeCloseTo(sees.length > 0 ? sum / sees.length : 0, 5)
    }
  })

  it('has highlights and rectangles that lead back to the same sentences', () => {
    const left = TOKENS.map((_, i) => i === 7)
    const axis = sentenceAxis(TOKENS, [TEXT, PAIR], left)
    expect(axis.labels.slice(0, 4)).toEqual(['[CLS]', '1 The boat sank.', '2 \u{1f600} Nobody, it seems,\u2026', ','])
    for (let from = 0; from < axis.labels.length; from++)
      for (let to = from + 1; to <= axis.labels.length; to++) {
        const box = { queries: [from, to] as const, keys: null }
        const back = highlightPlaces(axis, axis, { queries: [], keys: [], box: boxTokens(axis, axis, box) })
        // Between a token that left its sentence and the next sentence, the rest of its sentence is in between.
        expect(back.box).toEqual(from === 3 && to > 4 ? { queries: [2, to], keys: null } : box)
      }
    expect(wholePlaces(axis, [6])).toEqual([5, 6, 8, 9, 10, 11, 12, 13])
    expect(wholePlaces(axis, [7])).toEqual([7])
    expect(countedPlaces(axis, 'sentence')).toBe('5 sentences and 4 single tokens')
  })

  it('opens the tokens of a cell, also without those that are left out', () => {
    const texts = { tokens: TOKENS, keyTokens: TOKENS, texts: [TEXT, PAIR] as const }
    for (const how of ['show', 'hide'] as const) {
      const specials = TOKENS.map(({ kind }) => kind === 'special')
      const sinks = how === 'show' ? NO_SINKS : { queries: specials, keys: specials }
      const folded = drawnAxes(unitAxes(texts, 'sentences', sinks), sinks, how).axes
      const tokens = drawnAxes(unitAxes(texts, 'pieces', sinks), sinks, how).axes
      const n = tokens[0].labels.length
      const { top, left, size } = cellWindow(
        folded,
        tokens,
        folded[0].labels.indexOf('4 It was old.'),
        folded[1].labels.indexOf('1 The boat sank.'),
      )
      const within = (label: string, from: number) => {
        const at = tokens[0].labels.indexOf(label) / n
        return at >= from - 1e-9 && at + 1 / n <= from + size + 1e-9
      }
      for (const label of ['It', 'was', 'old']) if (label !== 'was') expect(within(label, top)).toBe(true)
      for (const label of ['The', 'boat', 'sank']) expect(within(label, left)).toBe(true)
      expect(size).toBeCloseTo(4 / n)
    }
  })
})
