/** Seeded maps that resemble those of real heads: previous token, sink, same word, broad, and mixtures. */
import type { Head, Token } from '../src/lib/data/analysis'
import type { Matrix } from '../src/lib/maths/matrix'

/** Mulberry32, a small seeded generator. */
export function random(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

type Pattern = (q: number, k: number, tokens: Token[], noise: number) => number

const PATTERNS: Pattern[] = [
  (q, k, _, noise) => 4 * Math.exp(-((k - q + 1) ** 2) / 0.8) + noise,
  (_q, k, tokens, noise) => (k === 0 ? 3.2 : tokens[k].kind === 'special' ? 1.6 : 0) + noise,
  (q, k, tokens, noise) => (tokens[q].text === tokens[k].text ? 3 : 0) + (k === 0 ? 2 : 0) + noise,
  (_q, _k, _, noise) => 0.6 * noise,
  (q, k, _, noise) => 2.5 * Math.exp(-Math.abs(k - q) / 6) + noise,
  (q, k, tokens, noise) => (tokens[k].kind === 'punct' ? 2.2 : 0) + (k === q + 1 ? 2.4 : 0) + noise,
]

export function weightsMap(tokens: Token[], { layer, head }: Head): Matrix {
  const n = tokens.length
  const next = random(1 + layer * 97 + head * 13)
  const pattern = PATTERNS[(layer * 5 + head * 7) % PATTERNS.length]
  const data = new Float32Array(n * n)
  for (let q = 0; q < n; q++) {
    let sum = 0
    for (let k = 0; k < n; k++) {
      data[q * n + k] = Math.exp(pattern(q, k, tokens, 2.2 * next()))
      sum += data[q * n + k]
    }
    for (let k = 0; k < n; k++) data[q * n + k] /= sum
  }
  return { data, rows: n, cols: n, exact: true }
}

/** A substitute for the projection: a share of every column is removed, and a little of it returns with either sign. */
export function effectiveMap(weights: Matrix, headWidth: number, seed: number): Matrix {
  const n = weights.rows
  if (n <= headWidth) return weights
  const next = random(seed)
  const leverage = leverageOf(n, headWidth, seed)
  const data = new Float32Array(n * n)
  for (let q = 0; q < n; q++) {
    for (let k = 0; k < n; k++) {
      data[q * n + k] = weights.data[q * n + k] * leverage[k] + ((next() - 0.5) * 0.6) / n
    }
  }
  return { data, rows: n, cols: n, exact: true }
}

/** Half of the weight moves one step further, to where the attended token attends. */
export function jumped(weights: Matrix): Matrix {
  const n = weights.rows
  const data = weights.data.map((value) => value / 2)
  for (let q = 0; q < n; q++) {
    for (let via = 0; via < n; via++) {
      const share = weights.data[q * n + via] / 2
      for (let k = 0; k < n; k++) data[q * n + k] += share * weights.data[via * n + k]
    }
  }
  return { ...weights, data }
}

export function leverageOf(n: number, headWidth: number, seed: number): number[] {
  const next = random(seed + 7)
  const share = Math.min(1, headWidth / n)
  return Array.from({ length: n }, (_, k) =>
    share === 1 ? 1 : Math.min(1, share * (k === 0 ? 0.05 : 0.5 + next()) + (k === n - 1 ? 0.3 : 0)),
  )
}
