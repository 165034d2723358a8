/** Heads of a study: ranked results of a query, and the details of one head. */
import type { Head } from '../../lib/data/analysis'
import type { FoundHeads } from '../../lib/data/search'
import type { Studies, StudyHead } from '../../lib/data/studies'
import { Cache } from '../../lib/net/cache'
import { latest } from '../../lib/net/latest'

interface Where {
  study: string
  lens: string
  variant: number
}

/** What the last answer was to, and what was asked for last. */
class Asked {
  #wanted = $state('')
  #answered = $state('')

  /** The answer is to an earlier question. */
  get stale(): boolean {
    return this.#wanted !== this.#answered
  }

  /** Returns what is to be called once the answer is there. */
  begin(...question: unknown[]): () => void {
    const key = JSON.stringify(question)
    this.#wanted = key
    return () => {
      this.#answered = key
    }
  }
}

export class StudyHeads {
  found = $state.raw<FoundHeads>()
  error = $state('')
  readonly #asked = new Asked()
  #known = new Cache<FoundHeads>(32)
  #task = latest((_signal, { study, lens, variant }: Where, query: string) =>
    this.#known.get(JSON.stringify([study, lens, variant, query]), () =>
      this.studies.heads(study, query, lens, variant),
    ),
  )

  constructor(
    readonly studies: Studies,
    private readonly fail: (error: unknown) => string,
  ) {}

  /** What was found is of something else, until the answer is there. */
  get stale(): boolean {
    return this.found !== undefined && this.#asked.stale
  }

  async find(where: Where, query: string): Promise<void> {
    const answered = this.#asked.begin(where, query)
    try {
      const found = await this.#task(where, query)
      if (!found) return
      answered()
      this.found = found
      this.error = ''
    } catch (error) {
      this.found = undefined
      this.error = this.fail(error)
    }
  }
}

/** The details of one head; the previous ones stay until the new ones have arrived. */
export class HeadPage {
  head = $state.raw<StudyHead>()
  error = $state('')
  readonly #asked = new Asked()
  #known = new Cache<StudyHead>(32)
  #task = latest((_signal, { study, lens, variant }: Where, head: Head) =>
    this.#known.get(JSON.stringify([study, lens, variant, head]), () => this.studies.head(study, head, lens, variant)),
  )

  constructor(
    readonly studies: Studies,
    private readonly fail: (error: unknown) => string,
  ) {}

  get stale(): boolean {
    return this.head !== undefined && this.#asked.stale
  }

  async ask(where: Where, head: Head): Promise<void> {
    const answered = this.#asked.begin(where, head)
    try {
      const found = await this.#task(where, head)
      if (!found) return
      answered()
      this.head = found
      this.error = ''
    } catch (error) {
      this.head = undefined
      this.error = this.fail(error)
    }
  }
}
