/** The reader's named sessions in this browser. */
import {
  MOST_SESSIONS,
  mergeSessions,
  nameProblem,
  parseSessions,
  type SavedSession,
  sessionName,
  writeSessions,
} from '../lib/data/sessions'
import { linkProblem } from '../lib/net/fragment'
import { keep, recall } from '../lib/net/storage'
import { plural } from '../lib/text/format'

const FULL = 'The browser’s storage is full or disabled. Export your sessions, and delete some.'
/** In bytes; browsers keep about this much for a page. */
const LARGEST_FILE = 5 * 2 ** 20

export class Sessions {
  open = $state(false)
  list = $state.raw<SavedSession[]>([])
  /** What happened last, and whether it failed. */
  message = $state.raw({ text: '', failed: false })
  /** What was deleted last, which can be restored. */
  deleted = $state.raw<SavedSession>()
  /** Sessions are the user's, if the server has users. */
  #user: () => string | null

  constructor(user: () => string | null) {
    this.#user = user
  }

  show(): void {
    this.open = true
    this.#say('')
    this.#read()
  }

  /** Save the link under a name, in place of a session of that name. */
  save(text: string, link: string): boolean {
    const name = sessionName(text)
    const problem = nameProblem(name) || linkProblem(link)
    if (problem) return this.#say(problem, true)
    this.#read()
    const others = this.list.filter((session) => session.name !== name)
    if (others.length >= MOST_SESSIONS)
      return this.#say(`At most ${MOST_SESSIONS} sessions can be kept. Delete one first.`, true)
    return this.#write([{ name, link, saved: Date.now() }, ...others], `“${name}” is saved in this browser.`)
  }

  rename(from: string, text: string): boolean {
    const to = sessionName(text)
    const problem = nameProblem(to)
    if (problem) return this.#say(problem, true)
    this.#read()
    if (to !== from && this.has(to)) return this.#say('Another session has that name. Choose a different one.', true)
    return this.#write(
      this.list.map((session) => (session.name === from ? { ...session, name: to } : session)),
      '',
    )
  }

  remove(name: string): void {
    this.#read()
    const deleted = this.list.find((session) => session.name === name)
    if (!deleted) return
    const kept = this.list.filter((session) => session !== deleted)
    if (this.#write(kept, `“${name}” is deleted.`)) this.deleted = deleted
  }

  restore(): void {
    const { deleted } = this
    if (!deleted) return
    this.#read()
    this.#write(mergeSessions(this.list, [deleted]), '')
  }

  has = (text: string): boolean => this.list.some(({ name }) => name === sessionName(text))

  /** All sessions as a file. */
  file = (): Blob => new Blob([writeSessions(this.list)], { type: 'application/json' })

  async take(file: File): Promise<void> {
    try {
      if (file.size > LARGEST_FILE) throw new Error('too large')
      const { sessions, invalid } = parseSessions(await file.text())
      this.#read()
      const all = mergeSessions(this.list, sessions)
      const added = all.length - this.list.length
      if (all.length > MOST_SESSIONS) {
        this.#say(
          `At most ${MOST_SESSIONS} sessions can be kept, and these would be ${all.length}. Delete some first.`,
          true,
        )
        return
      }
      const known = sessions.length - added
      const left = [known > 0 ? `${known} already here` : '', invalid > 0 ? `${invalid} invalid` : ''].filter(Boolean)
      this.#write(all, `${plural(added, 'session')} imported${left.length > 0 ? `; ${left.join(', ')}` : ''}.`)
    } catch {
      this.#say('This file contains no sessions. Choose a file that was exported here.', true)
    }
  }

  get #key(): string {
    const user = this.#user()
    return user ? `sessions.${user}` : 'sessions'
  }

  /** As other tabs have left them. */
  #read(): void {
    this.deleted = undefined
    try {
      this.list = parseSessions(recall(this.#key) ?? writeSessions([])).sessions
    } catch {
      this.list = []
    }
  }

  #write(list: SavedSession[], done: string): boolean {
    if (!keep(this.#key, writeSessions(list))) return this.#say(FULL, true)
    this.list = list
    this.#say(done)
    return true
  }

  #say(text: string, failed = false): false {
    this.message = { text, failed }
    return false
  }
}
