/** Stars and notes on heads, as they are kept in the address: by model and kind of attention, then by head. A head with a note is starred. */
import { type Analysis, type Head, headName, parseHead } from './analysis'

/** Note by name of the head, such as `4.5`; empty for a star alone. */
export type HeadNotes = Readonly<Record<string, string>>
export type Notes = Readonly<Record<string, HeadNotes>>

/** In characters: what one note may have, and what all of them may have, as addresses have limits. */
export const LONGEST_NOTE = 500
export const ALL_NOTES = 8000
const MOST_STARS = 200

/** Heads of other models, or of another kind of attention, are other heads. */
export const notesKey = ({ model, kind }: Pick<Analysis, 'model' | 'kind'>) => `${model}/${kind}`

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Parse notes of an address or a file; invalid entries are dropped, and long notes are truncated. */
export function parseNotes(text: string): Notes {
  const notes: Record<string, HeadNotes> = {}
  for (const [key, heads] of Object.entries(readObject(text))) {
    if (!isRecord(heads)) continue
    const known = Object.entries(heads).filter(
      (entry): entry is [string, string] => typeof entry[1] === 'string' && parseHead(entry[0]) !== undefined,
    )
    const kept = known.slice(0, MOST_STARS).map(([head, note]) => [head, note.slice(0, LONGEST_NOTE)])
    if (kept.length > 0) notes[key] = Object.fromEntries(kept)
  }
  return notes
}

function readObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : {}
  } catch {
    return {}
  }
}

export const writeNotes = (notes: Notes): string => (Object.keys(notes).length === 0 ? '' : JSON.stringify(notes))

/** The notes with another note of a head; null removes its star and its note. */
export function withNote(notes: Notes, key: string, head: Head, note: string | null): Notes {
  const { [headName(head)]: _, ...rest } = notes[key] ?? {}
  const heads = note === null ? rest : { ...rest, [headName(head)]: note }
  const { [key]: __, ...others } = notes
  return Object.keys(heads).length === 0 ? others : { ...others, [key]: heads }
}

/** Why these notes cannot be kept; empty if they can. */
export function notesProblem(notes: Notes, key: string, note: string): string {
  if (note.length > LONGEST_NOTE)
    return `A note may have ${LONGEST_NOTE} characters, and this one has ${note.length}. Shorten it.`
  if (Object.keys(notes[key] ?? {}).length > MOST_STARS)
    return `At most ${MOST_STARS} heads can be starred. Remove a star first.`
  if (writeNotes(notes).length > ALL_NOTES)
    return `All notes together may have ${ALL_NOTES} characters, as the link contains them. Shorten or remove one.`
  return ''
}

/** The starred heads by layer and head. */
export const starredHeads = (notes: HeadNotes | undefined): { head: Head; note: string }[] =>
  Object.entries(notes ?? {})
    .flatMap(([name, note]) => {
      const head = parseHead(name)
      return head ? [{ head, note }] : []
    })
    .sort((a, b) => a.head.layer - b.head.layer || a.head.head - b.head.head)
