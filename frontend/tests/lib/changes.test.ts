import { describe, expect, it } from 'vitest'
import { fixedSource, fixedTokens } from '../../gallery/source'
import { alignTokens, findChanges, type Snapshot } from '../../src/lib/data/changes'
import type { Tiles } from '../../src/lib/maths/matrix'

const words = (text: string) => fixedTokens(text)

/** One layer of two heads over n tokens, each row by a rule. */
function side(text: string, rules: ((q: number, k: number, n: number) => number)[]): Snapshot {
  const tokens = words(text)
  const n = tokens.length
  const bytes = Uint8Array.from(
    rules.flatMap((rule) => Array.from({ length: n * n }, (_, i) => 255 * rule(Math.floor(i / n), i % n, n))),
  )
  const flat = (value: number) => new Float32Array(rules.length).fill(value)
  const tiles: Tiles = {
    bytes,
    scale: flat(1 / 255),
    offset: flat(0),
    layers: 1,
    heads: rules.length,
    rows: n,
    cols: n,
  }
  return { tokens, tiles }
}
const self = (q: number, k: number) => (q === k ? 1 : 0)
const first = (_: number, k: number) => (k === 0 ? 1 : 0)
const last = (_: number, k: number, n: number) => (k === n - 1 ? 1 : 0)

describe('aligned tokens', () => {
  it.each([
    ['One two three', 'One two three', [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]],
    ['One two three', 'One three', [0, 1, 3, 4], [0, 1, 2, 3]],
    ['One three', 'One two three', [0, 1, 2, 3], [0, 1, 3, 4]],
    ['One two', 'Six seven', [0, 3], [0, 3]],
  ])('%j and %j', (before, after, left, right) => {
    const pairs = alignTokens(words(before), words(after))
    expect(pairs.map(([i]) => i)).toEqual(left)
    expect(pairs.map(([, j]) => j)).toEqual(right)
  })
})

describe('changes', () => {
  it('are new tokens, and heads that look elsewhere, the most changed first', () => {
    const found = findChanges(side('One two', [self, first, first]), side('One red two', [self, last, first]))
    expect([...(found?.tokens ?? [])]).toEqual([2])
    expect(found?.heads).toEqual([{ layer: 0, head: 1 }])
  })

  it('are none between the same', () => {
    expect(findChanges(side('One', [self]), side('One', [self]))).toEqual({ tokens: new Set(), heads: [] })
  })

  it('cannot be told between models of other shapes, or long texts', () => {
    expect(findChanges(side('One', [self]), side('One', [self, self]))).toBeUndefined()
    const long = side('One '.repeat(300), [self])
    expect(findChanges(long, long)).toBeUndefined()
  })

  it('are found in thumbnails that are coarser than the text', async () => {
    const source = fixedSource()
    const request = {
      model: 'minilm',
      textPair: '',
      kind: '',
      mechanism: { name: 'softmax', params: {} },
      lenses: [{ name: 'weights', params: {} }],
      measures: [],
    }
    const sideOf = async (text: string): Promise<Snapshot> => {
      const { signal } = new AbortController()
      const { id, tokens } = await source.submit({ ...request, text }, signal)
      return { tokens, tiles: await source.grid(id, 'weights', { without: false, side: 32, tokens: 0 }, signal) }
    }
    const [before, after] = [
      await sideOf('One two three. '.repeat(12)),
      await sideOf(`${'One two three. '.repeat(11)}One red three.`),
    ]
    const found = findChanges(before, after)
    expect([...(found?.tokens ?? [])].map((i) => after.tokens[i].text)).toEqual(['red'])
    expect(found?.heads.length).toBeLessThanOrEqual(3)
  })
})
