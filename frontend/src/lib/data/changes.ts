/** Differences between the analysis on screen and the previous one: new tokens, and heads whose attention moved. */

import type { Tiles } from '../maths/matrix'
import type { Head, Token } from './analysis'

export interface Changes {
  /** Tokens, along the queries, that the previous text did not have. */
  tokens: ReadonlySet<number>
  /** The heads that changed most, in descending order. */
  heads: readonly Head[]
}

type Pair = readonly [number, number]
const MOST_HEADS = 3
/** Changes below this share of a row's weight are not marked. */
const LEAST_CHANGE = 0.02
/** Texts of live runs are short; aligning longer ones takes more than one frame. */
const MOST_TOKENS = 256

const spelled = ({ text, segment }: Token) => `${segment} ${text}`

/** Align two texts: pairs [before, after] of their longest common subsequence of tokens. */
export function alignTokens(before: readonly Token[], after: readonly Token[]): Pair[] {
  const [a, b] = [before.map(spelled), after.map(spelled)]
  const width = b.length + 1
  const longest = new Uint16Array((a.length + 1) * width)
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const [skipA, skipB] = [longest[(i + 1) * width + j], longest[i * width + j + 1]]
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(skipA, skipB)
    }
  }
  const pairs: Pair[] = []
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) pairs.push([i++, j++])
    else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i++
    else j++
  }
  return pairs
}

export interface Snapshot {
  tokens: readonly Token[]
  tiles: Tiles
}

/** Undefined for texts that are too long and for different models. */
export function findChanges(before: Snapshot, after: Snapshot): Changes | undefined {
  const [a, b] = [before.tiles, after.tiles]
  if (Math.max(before.tokens.length, after.tokens.length) > MOST_TOKENS) return undefined
  if (a.layers !== b.layers || a.heads !== b.heads) return undefined
  const pairs = alignTokens(before.tokens, after.tokens)
  const kept = new Set(pairs.map(([, j]) => j))
  const fresh = after.tokens.flatMap((_, j) => (kept.has(j) ? [] : [j]))
  return { tokens: new Set(fresh), heads: mostChanged(before, after, pairs) }
}

function mostChanged(before: Snapshot, after: Snapshot, pairs: readonly Pair[]): Head[] {
  const { layers, heads } = after.tiles
  const found: { head: Head; change: number }[] = []
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      const change = moved(before, after, layer * heads + head, pairs)
      if (change >= LEAST_CHANGE) found.push({ head: { layer, head }, change })
    }
  }
  return found
    .sort((x, y) => y.change - x.change)
    .slice(0, MOST_HEADS)
    .map(({ head }) => head)
}

/** The share of weight that moved between the tokens of both texts: half the sum of absolute differences, averaged over rows. */
function moved(before: Snapshot, after: Snapshot, at: number, pairs: readonly Pair[]): number {
  const [a, b] = [reader(before, at), reader(after, at)]
  let sum = 0
  for (const [i, j] of pairs) {
    for (const [k, l] of pairs) sum += Math.abs(a(i, k) - b(j, l)) / 2
  }
  return pairs.length === 0 ? 0 : sum / pairs.length
}

/** Read a thumbnail by token; a pooled cell gives its value to each of its tokens. */
function reader({ tokens, tiles }: Snapshot, at: number): (q: number, k: number) => number {
  const { rows, cols, bytes, scale, offset } = tiles
  const [down, across] = [rows / tokens.length, cols / tokens.length]
  const start = at * rows * cols
  return (q, k) => offset[at] + scale[at] * bytes[start + Math.floor(q * down) * cols + Math.floor(k * across)]
}
