/** The reader's studies, latest first, refreshed while one of them runs. */
import { isOver, type Studies, type StudyItem } from '../../lib/data/studies'

const AGAIN_MS = 4000
/** The page size, and the maximum of one request. */
const PAGE = 50
const MOST = 200

export class StudyList {
  /** Undefined until the first answer. */
  items = $state.raw<StudyItem[]>()
  /** The cursor of the next page; null if all are loaded. */
  next = $state.raw<string | null>(null)
  /** The next page is being loaded. */
  busy = $state(false)
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(
    readonly studies: Studies,
    private readonly fail: (error: unknown) => void,
  ) {}

  /** Refresh the first page; later ones stay as they were. */
  load = async (): Promise<void> => {
    clearTimeout(this.#timer)
    const known = this.items ?? []
    await this.#try(async () => {
      const { items, next } = await this.studies.list(Math.min(MOST, Math.max(PAGE, known.length)))
      const oldest = items.at(-1)?.when ?? Number.NEGATIVE_INFINITY
      const older = next === null ? [] : known.filter(({ when }) => when < oldest)
      this.items = [...items, ...older]
      if (older.length === 0) this.next = next
      if (items.some((item) => !isOver(item))) this.#timer = setTimeout(() => void this.load(), AGAIN_MS)
    })
  }

  /** Load the next page, or with `all` the rest. */
  async more(all = false): Promise<void> {
    if (this.busy) return
    this.busy = true
    await this.#try(async () => {
      while (this.next !== null) {
        const { items, next } = await this.studies.list(all ? MOST : PAGE, this.next)
        this.items = [...(this.items ?? []), ...items]
        this.next = next
        if (!all) return
      }
    })
    this.busy = false
  }

  /** Remove a deleted study. */
  drop(id: string): void {
    this.items = this.items?.filter((item) => item.id !== id)
  }

  /** The list is no longer on screen. */
  stop(): void {
    clearTimeout(this.#timer)
  }

  async #try(what: () => Promise<void>): Promise<void> {
    try {
      await what()
    } catch (error) {
      this.fail(error)
    }
  }
}
