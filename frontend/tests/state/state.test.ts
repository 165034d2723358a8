import { describe, expect, it } from 'vitest'
import { fixedText } from '../../gallery/source'
import { Cache } from '../../src/lib/net/cache'
import { decodeFragment, encodeFragment } from '../../src/lib/net/fragment'
import { latest } from '../../src/lib/net/latest'

describe('fragment', () => {
  const initial = { text: '', head: '', scale: 'sqrt' }

  it.each([
    'plain words',
    'a&b=c#d%',
    '<img src=x onerror=alert(1)>',
    'Zo\u00eb + \ud83d\ude00\nsecond line',
    '"; drop',
  ])('carries %j unchanged', (text) => {
    const fields = { ...initial, text, head: '4.5' }
    expect(decodeFragment(`#${encodeFragment(fields, initial)}`, initial)).toEqual(fields)
  })

  it('writes only what differs and ignores what it does not know', () => {
    expect(encodeFragment({ ...initial, head: '0.0' }, initial)).toBe('head=0.0')
    expect(decodeFragment('#head=1.2&__proto__=x&other=1&text=%E0%A4%A', initial)).toEqual({
      ...initial,
      head: '1.2',
      text: '%E0%A4%A',
    })
  })
})

describe('latest', () => {
  it('answers only the last call and aborts the one before', async () => {
    const signals: AbortSignal[] = []
    const run = latest(async (signal, value: number) => {
      signals.push(signal)
      await new Promise((resolve) => setTimeout(resolve, value))
      return value
    })
    const [first, second] = [run(20), run(1)]
    expect(await first).toBeUndefined()
    expect(await second).toBe(1)
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, false])
  })

  it('passes on the failure of the last call only', async () => {
    const run = latest(async () => {
      throw new Error('no')
    })
    const first = run()
    const second = run()
    expect(await first).toBeUndefined()
    await expect(second).rejects.toThrow('no')
  })
})

describe('Cache', () => {
  it('asks once, forgets failures and the least recently used', async () => {
    const cache = new Cache<number>(2)
    let asked = 0
    const ask = async () => ++asked
    expect(await cache.get('a', ask)).toBe(1)
    expect(await cache.get('a', ask)).toBe(1)
    expect(cache.peek('a')).toBe(1)
    await expect(cache.get('bad', () => Promise.reject(new Error('x')))).rejects.toThrow()
    await cache.get('b', ask)
    await cache.get('c', ask)
    expect(cache.peek('a')).toBeUndefined()
    expect(cache.peek('bad')).toBeUndefined()
  })

  it('keeps more than its number while all of them are small', async () => {
    const cache = new Cache<number>(1, 10, (size) => size)
    for (const [key, size] of [
      ['a', 4],
      ['b', 4],
      ['c', 2],
    ] as const)
      await cache.get(key, async () => size)
    expect(['a', 'b', 'c'].map((key) => cache.peek(key))).toEqual([4, 4, 2])
    await cache.get('d', async () => 3)
    expect(['a', 'b', 'c', 'd'].map((key) => cache.peek(key))).toEqual([undefined, 4, 2, 3])
    await cache.get('e', async () => 99)
    expect(['b', 'c', 'd', 'e'].map((key) => cache.peek(key))).toEqual([undefined, undefined, undefined, 99])
  })

  it('aborts what no one waits for, and asks again for the next one who does', async () => {
    const cache = new Cache<number>(2)
    const signals: AbortSignal[] = []
    const ask = (signal: AbortSignal) => {
      signals.push(signal)
      return new Promise<number>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    }
    const turn = () => new Promise((resolve) => setTimeout(resolve))
    const readers = [0, 1, 2].map(() => new AbortController())
    const answers = readers.slice(0, 2).map(({ signal }) => cache.get('a', ask, signal).catch(() => 'aborted'))
    readers[0].abort()
    await turn()
    expect(signals.map(({ aborted }) => aborted)).toEqual([false])
    // The third comes in the turn in which the second leaves.
    readers[1].abort()
    answers.push(cache.get('a', ask, readers[2].signal).catch(() => 'aborted'))
    await turn()
    expect(signals.map(({ aborted }) => aborted)).toEqual([false])
    readers[2].abort()
    expect(await Promise.all(answers)).toEqual(['aborted', 'aborted', 'aborted'])
    expect(await cache.get('a', async () => 5)).toBe(5)
    // Someone who never leaves keeps it.
    void cache.get('b', ask)
    const left = new AbortController()
    void cache.get('b', ask, left.signal)
    left.abort()
    await turn()
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, false])
  })

  it('keeps what has arrived when its readers leave', async () => {
    const cache = new Cache<number>(2)
    const left = new AbortController()
    let asked = 0
    expect(await cache.get('a', async () => ++asked, left.signal)).toBe(1)
    left.abort()
    await new Promise((resolve) => setTimeout(resolve))
    expect(await cache.get('a', async () => ++asked, new AbortController().signal)).toBe(1)
    expect(cache.peek('a')).toBe(1)
  })

  it('keeps what is still on its way, and what it was made of goes first', async () => {
    const cache = new Cache<number>(1, 2, (size) => size)
    const whole = cache.get('whole', async () => {
      let sum = 0
      for (const part of ['a', 'b', 'c']) sum += await cache.get(part, async () => 1)
      return sum
    })
    expect(await whole).toBe(3)
    expect(['a', 'b', 'c', 'whole'].map((key) => cache.peek(key))).toEqual([undefined, undefined, undefined, 3])
  })
})

it('fixed text has as many tokens as asked', () => {
  expect(fixedText(12).split(' ')).toHaveLength(10)
})
