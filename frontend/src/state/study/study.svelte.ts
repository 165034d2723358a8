/** One study: looked up, watched while it runs, cancelled or deleted. */

import { SourceError } from '../../lib/data/source'
import { isOver, type Studies, type Study, type StudyRun } from '../../lib/data/studies'
import { latest } from '../../lib/net/latest'

/** The code of the answer about a study that was deleted. */
const GONE = 'unknown-study'

export class OpenStudy {
  /** The study on screen; undefined before the first answer. */
  study = $state.raw<Study>()
  /** Why there is none. */
  error = $state('')
  #id = ''
  #task = latest((signal, id: string) => this.#follow(signal, id))

  constructor(
    readonly studies: Studies,
    /** Called when it starts or ends, as lists show that, too. */
    private readonly changed: () => void,
    private readonly fail: (error: unknown) => string,
  ) {}

  /** Open a study by id; an empty id closes. */
  async open(id: string): Promise<void> {
    if (id === this.#id) return
    this.#id = id
    this.study = undefined
    this.error = ''
    if (id === '') return this.#task.stop()
    await this.#attempt(() => this.#task(id))
  }

  /** Reload it: it was restarted, or someone else has signed in. */
  again(id: string): Promise<void> {
    this.#id = ''
    return this.open(id)
  }

  /** One that has ended by now is kept, as it would be deleted. */
  cancel = (): Promise<void> =>
    this.#change(async (id) => {
      const { status } = await this.studies.study(id, new AbortController().signal)
      if (!isOver({ status })) await this.studies.remove(id)
    })

  /** One that was resumed elsewhere is kept and shown, as it would only be cancelled. Returns whether it is deleted. */
  delete = async (): Promise<boolean> => {
    let deleted = false
    await this.#change(async (id) => {
      deleted = isOver(await this.studies.study(id, new AbortController().signal))
      if (deleted) await this.studies.remove(id)
      else await this.again(id)
    })
    return deleted && this.error === ''
  }

  /** Look whether one that ended without results is still there, and still at rest. */
  async look(): Promise<void> {
    const { study } = this
    if (!study || !isOver(study) || study.status === 'done') return
    try {
      await this.#task(study.id)
    } catch (error) {
      if (error instanceof SourceError && error.code === GONE) this.error = this.fail(error)
    }
  }

  async #change(how: (id: string) => Promise<void>): Promise<void> {
    const id = this.study?.id
    if (id === undefined) return
    await this.#attempt(() => how(id))
    this.changed()
  }

  async #attempt(what: () => Promise<unknown>): Promise<void> {
    try {
      await what()
    } catch (error) {
      this.error = this.fail(error)
    }
  }

  async #follow(signal: AbortSignal, id: string): Promise<void> {
    const first = await this.studies.study(id, signal)
    this.#show(signal, first)
    if (isOver(first)) return
    const report = (run: StudyRun) => this.study && this.#show(signal, { ...this.study, ...run })
    await this.studies.watch(id, report, signal)
    if (signal.aborted) return
    this.#show(signal, await this.studies.study(id, signal))
    this.changed()
  }

  #show(signal: AbortSignal, study: Study): void {
    if (!signal.aborted) this.study = study
  }
}
