/** Named sessions: links with stars and notes, kept in this browser and as files. */
import { linkProblem } from '../net/fragment'

export interface SavedSession {
  name: string
  /** The fragment of the address, which includes stars and notes. */
  link: string
  /** Milliseconds since 1970. */
  saved: number
}

export const LONGEST_NAME = 80
export const MOST_SESSIONS = 200

const FORMAT = 'headscope-sessions'

/** The name as it is kept. */
export const sessionName = (text: string) => text.replace(/\s+/g, ' ').trim()

/** Why a session cannot have this name; empty if it can. */
export function nameProblem(name: string): string {
  if (name === '') return 'Enter a name for the session.'
  return name.length > LONGEST_NAME
    ? `A name may have ${LONGEST_NAME} characters, and this one has ${name.length}. Shorten it.`
    : ''
}

const isSession = (value: unknown): value is SavedSession => {
  const { name, link, saved } = (value ?? {}) as Partial<Record<keyof SavedSession, unknown>>
  return (
    typeof name === 'string' &&
    nameProblem(sessionName(name)) === '' &&
    typeof link === 'string' &&
    linkProblem(link) === '' &&
    typeof saved === 'number' &&
    Number.isFinite(saved)
  )
}

/** Sessions of a file or of the browser's storage, and how many entries were not valid. Throws if it is not a list of sessions. */
export function parseSessions(text: string): { sessions: SavedSession[]; invalid: number } {
  const file = JSON.parse(text) as { format?: unknown; sessions?: unknown } | null
  if (file?.format !== FORMAT || !Array.isArray(file.sessions)) throw new Error('not a list of sessions')
  const sessions = file.sessions
    .filter(isSession)
    .map(({ name, link, saved }) => ({ name: sessionName(name), link, saved }))
  return { sessions, invalid: file.sessions.length - sessions.length }
}

export const writeSessions = (sessions: readonly SavedSession[]): string =>
  JSON.stringify({ format: FORMAT, version: 1, sessions }, null, 1)

/** A name that none of the others has: `Banks`, then `Banks (2)`. */
function freeName(name: string, taken: ReadonlySet<string>): string {
  for (let number = 1; ; number++) {
    const end = number === 1 ? '' : ` (${number})`
    const found = name.slice(0, LONGEST_NAME - end.length) + end
    if (!taken.has(found)) return found
  }
}

/** Add sessions; equal ones are added once, and other ones with a name that is taken get another name. */
export function mergeSessions(kept: readonly SavedSession[], added: readonly SavedSession[]): SavedSession[] {
  const all = [...kept]
  for (const session of added) {
    if (all.some(({ name, link }) => name === session.name && link === session.link)) continue
    all.push({ ...session, name: freeName(session.name, new Set(all.map(({ name }) => name))) })
  }
  return all
}
