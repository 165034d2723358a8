import { describe, expect, it } from 'vitest'
import { type HistoryItem, type Source, SourceError } from '../../src/lib/data/source'
import { beginning } from '../../src/lib/text/length'
import { distinctItems, History } from '../../src/state/history.svelte'

const item = (id: string, text: string, model = 'minilm'): HistoryItem => ({
  id,
  text,
  textPair: '',
  model,
  mechanism: 'softmax',
  image: text === '',
  settings: '',
  when: 0,
})

describe('the history', () => {
  const items = [item('a', 'One'), item('b', 'One'), item('c', 'One', 'bert'), item('d', ''), item('e', '')]
  it('has each text once per model', () =>
    expect(distinctItems(items, undefined).map(({ id }) => id)).toEqual(['a', 'c', 'd', 'e']))
  it('keeps the entry on screen', () =>
    expect(distinctItems(items, 'b').map(({ id }) => id)).toEqual(['b', 'c', 'd', 'e']))

  it('is loaded page by page, and keeps what it has when a page fails', async () => {
    const pages: Record<string, { items: HistoryItem[]; next: string | null }> = {
      first: { items: items.slice(0, 2), next: 'second' },
      second: { items: items.slice(2), next: null },
    }
    let away = false
    const recent = async (from = 'first') => {
      if (away) throw new SourceError('No connection.', 'network', 0)
      return pages[from] ?? { items: [], next: null }
    }
    const history = new History({ recent } as unknown as Source)
    await history.show()
    expect([history.items, history.next]).toEqual([items.slice(0, 2), 'second'])
    away = true
    await history.more()
    expect([history.error, history.items, history.next]).toEqual(['No connection.', items.slice(0, 2), 'second'])
    away = false
    await history.more()
    expect([history.error, history.items, history.next]).toEqual(['', items, null])
    await history.show()
    expect(history.items).toEqual(items.slice(0, 2))
  })
})

describe('the beginning of a text', () => {
  it('ends with a word', () => expect(beginning('one two three', 9)).toBe('one two'))
  it('never ends within a character', () => expect(beginning('日本語', 7)).toBe('日本'))
  it('is all of a short text', () => expect(beginning('one two', 7)).toBe('one two'))
})
