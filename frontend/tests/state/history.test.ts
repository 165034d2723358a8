import { describe, expect, it } from 'vitest'
import type { HistoryItem } from '../../src/lib/data/source'
import { beginning } from '../../src/lib/text/length'
import { distinctItems } from '../../src/state/history.svelte'

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
})

describe('the beginning of a text', () => {
  it('ends with a word', () => expect(beginning('one two three', 9)).toBe('one two'))
  it('never ends within a character', () => expect(beginning('日本語', 7)).toBe('日本'))
  it('is all of a short text', () => expect(beginning('one two', 7)).toBe('one two'))
})
