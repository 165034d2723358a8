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

export class StudyHeads {
  found = $state.raw<FoundHeads>()
  error = $state('')
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

  async find(where: Where, query: string): Promise<void> {
    try {
      const found = await this.#task(where, query)
      if (!found) return
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
  #known = new Cache<StudyHead>(32)
  #task = latest((_signal, { study, lens, variant }: Where, head: Head) =>
    this.#known.get(JSON.stringify([study, lens, variant, head]), () => this.studies.head(study, head, lens, variant)),
  )

  constructor(
    readonly studies: Studies,
    private readonly fail: (error: unknown) => string,
  ) {}

  async ask(where: Where, head: Head): Promise<void> {
    try {
      const found = await this.#task(where, head)
      if (!found) return
      this.head = found
      this.error = ''
    } catch (error) {
      this.head = undefined
      this.error = this.fail(error)
    }
  }
}
