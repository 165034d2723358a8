import { describe, expect, it } from 'vitest'
import {
  ALL_NOTES,
  LONGEST_NOTE,
  notesKey,
  notesProblem,
  parseNotes,
  starredHeads,
  withNote,
  writeNotes,
} from '../../src/lib/data/notes'

const KEY = notesKey({ model: 'minilm', kind: 'encoder' })
const head = { layer: 4, head: 5 }

describe('notes', () => {
  it('come back as written, and go with their star', () => {
    const one = withNote({}, KEY, head, 'Looks at \u201cbank\u201d & more')
    const two = withNote(one, KEY, { layer: 0, head: 11 }, '')
    expect(parseNotes(writeNotes(two))).toEqual(two)
    expect(starredHeads(two[KEY]).map(({ head }) => head.layer)).toEqual([0, 4])
    expect(withNote(one, KEY, head, null)).toEqual({})
    expect(writeNotes({})).toBe('')
  })

  it('of another model are not touched', () => {
    const both = withNote(withNote({}, KEY, head, 'a'), 'vit/encoder', head, 'b')
    expect(withNote(both, KEY, head, null)).toEqual({ 'vit/encoder': { '4.5': 'b' } })
  })

  it.each(['', 'no JSON', '[]', 'null', '{"minilm/self": 3}', '{"minilm/encoder": {"4.5": 3, "head": "x"}}'])(
    'that are none are left out: %j',
    (text) => expect(parseNotes(text)).toEqual({}),
  )

  it('are bounded, with a reason', () => {
    const long = 'x'.repeat(LONGEST_NOTE + 1)
    expect(notesProblem(withNote({}, KEY, head, long), KEY, long)).toContain('may have 500 characters')
    const note = 'x'.repeat(LONGEST_NOTE)
    const many = Array.from({ length: ALL_NOTES / LONGEST_NOTE }, (_, i) => ({ layer: 0, head: i }))
    const full = many.reduce((notes, at) => withNote(notes, KEY, at, note), {})
    expect(notesProblem(full, KEY, note)).toContain('All notes together')
    expect(notesProblem(withNote({}, KEY, head, note), KEY, note)).toBe('')
    expect(parseNotes(writeNotes(withNote({}, KEY, head, long)))[KEY]['4.5']).toBe(note)
  })
})
