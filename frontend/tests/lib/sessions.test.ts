import { describe, expect, it, vi } from 'vitest'
import {
  LONGEST_NAME,
  mergeSessions,
  nameProblem,
  parseSessions,
  sessionName,
  writeSessions,
} from '../../src/lib/data/sessions'
import { Sessions } from '../../src/state/sessions.svelte'

const session = (name: string, link = 'text=a') => ({ name, link, saved: 1 })

describe('sessions', () => {
  it('come back as written, and entries that are none are counted', () => {
    const list = [session('Banks'), session('Zo\u00eb', 'notes=%7B%7D')]
    expect(parseSessions(writeSessions(list))).toEqual({ sessions: list, invalid: 0 })
    const broken = writeSessions([
      ...list,
      { name: '', link: 'x', saved: 1 },
      3 as never,
      { ...session('a'), link: 1 as never },
    ])
    expect(parseSessions(broken)).toEqual({ sessions: list, invalid: 3 })
    for (const text of ['', 'null', '[]', '{"sessions": []}']) expect(() => parseSessions(text)).toThrow()
  })

  it('are merged without loss: equal ones once, others under another name', () => {
    const kept = [session('Banks'), session('Banks (2)', 'text=b')]
    const names = mergeSessions(kept, [session('Banks'), session('Banks', 'text=c')]).map(({ name }) => name)
    expect(names).toEqual(['Banks', 'Banks (2)', 'Banks (3)'])
    const long = 'x'.repeat(LONGEST_NAME)
    expect(mergeSessions([session(long)], [session(long, 'text=b')])[1].name).toHaveLength(LONGEST_NAME)
  })

  it('have a name of bounded length', () => {
    expect(nameProblem(sessionName('  two\n words '))).toBe('')
    expect(nameProblem(sessionName('  '))).toBe('Enter a name for the session.')
    expect(nameProblem('x'.repeat(LONGEST_NAME + 1))).toContain('may have 80 characters')
  })
})

it('a session whose link is too long is refused, and any other is there again', () => {
  const store = new Map<string, string>()
  const setItem = (key: string, value: string) => void store.set(key, value)
  vi.stubGlobal('localStorage', { getItem: (key: string) => store.get(key) ?? null, setItem })
  const sessions = new Sessions(() => null)
  sessions.save('Long', `text=${'a'.repeat(250_000)}`)
  sessions.save('Longer', `text=${'a'.repeat(300_000)}`)
  expect(sessions.message).toEqual({ text: expect.stringContaining('too long for a link'), failed: true })
  sessions.show()
  expect(sessions.list.map(({ name }) => name)).toEqual(['Long'])
  vi.unstubAllGlobals()
})
