/** Comparisons of fixed analyses for the gallery: common beginnings and ends of two texts are aligned, and equally many tokens in between. */

import type { Head, Token } from '../src/lib/data/analysis'
import type { Comparisons } from '../src/lib/data/source'
import type { Alignment, Likeness, TokenPair } from '../src/lib/maths/alignment'
import type { Matrix } from '../src/lib/maths/matrix'

interface Fixed {
  tokens: (id: string) => Token[]
  map: (id: string, lens: string, head: Head) => Matrix
  heads: readonly Head[][]
}

export function fixedComparisons({ tokens, map, heads }: Fixed): Comparisons {
  const likeness = (signed: boolean, pair: (head: Head) => [Matrix, Matrix]): Likeness => {
    const maps = heads.map((row) => row.map(pair))
    const cosines = maps.map((row) => row.map(([a, b]) => cosine(a, b)))
    return { cosine: cosines, divergence: signed ? null : maps.map((row) => row.map(([a, b]) => divergence(a, b))) }
  }
  const signed = (...lenses: string[]) => lenses.includes('effective')
  return {
    tokens: async (id, other) => aligned(tokens(id), tokens(other)),
    heads: async (id, other, lens, otherLens) =>
      likeness(signed(lens, otherLens), (head) => [map(id, lens, head), map(other, otherLens, head)]),
    matches: async (id, other, lens, open) =>
      likeness(signed(lens), (head) => [map(id, lens, open), map(other, lens, head)]),
  }
}

function aligned(one: Token[], other: Token[]): Alignment {
  const least = Math.min(one.length, other.length)
  const alike = (i: number, j: number) => one[i].text === other[j].text
  let before = 0
  while (before < least && alike(before, before)) before++
  let after = 0
  while (after < least - before && alike(one.length - 1 - after, other.length - 1 - after)) after++
  const between = one.length === other.length ? one.length - after : before
  const places = one.flatMap((_, i) =>
    i < between ? [[i, i]] : i >= one.length - after ? [[i, i + other.length - one.length]] : [],
  )
  const pairs = places.map(
    ([i, j]): TokenPair => ({ tokens: [i], others: [j], text: one[i].text, otherText: other[j].text }),
  )
  const by = pairs.length === one.length && before === one.length ? 'token' : 'word'
  return { by, share: pairs.length / Math.max(one.length, other.length), queries: pairs, keys: pairs }
}

/** Null for texts of different lengths, which the gallery does not align. */
function cosine(a: Matrix, b: Matrix): number | null {
  if (a.data.length !== b.data.length) return null
  const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, value, i) => sum + value * y[i], 0)
  return dot(a.data, b.data) / Math.sqrt(dot(a.data, a.data) * dot(b.data, b.data))
}

function divergence(a: Matrix, b: Matrix): number | null {
  if (a.data.length !== b.data.length) return null
  const part = (p: number, q: number) => (p > 0 ? (p * Math.log2((2 * p) / (p + q))) / 2 : 0)
  return a.data.reduce((sum, p, i) => sum + part(p, b.data[i]) + part(b.data[i], p), 0) / a.rows
}
