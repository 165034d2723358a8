/** One study: looked up, watched while it runs, cancelled or forgotten. */

import { isOver, type Studies, type Study, type StudyRun } from '../../lib/data/studies'
import { latest } from '../../lib/net/latest'

export class OpenStudy {
  /** What is on screen; undefined before the first answer. */
  study = $state.raw<Study>()
  /** Why there is none. */
  error = $state('')
  #id = ''
  #task = latest((signal, id: string) => this.#follow(signal, id))

  constructor(
    readonly studies: Studies,
    /** It has begun or ended: lists say so, too. */
    private readonly changed: () => void,
    private readonly fail: (error: unknown) => string,
  ) {}

  /** Opens the study of that id; an empty one closes. */
  async open(id: string): Promise<void> {
    if (id === this.#id) return
    this.#id = id
    this.study = undefined
    this.error = ''
    if (id === '') return this.#task.stop()
    try {
      await this.#task(id)
    } catch (error) {
      this.error = this.fail(error)
    }
  }

  /** The same once more: it has been started again, or somebody else asks. */
  again(id: string): Promise<void> {
    this.#id = ''
    return this.open(id)
  }

  async remove(): Promise<void> {
    const id = this.study?.id
    if (id === undefined) return
    try {
      await this.studies.remove(id)
    } catch (error) {
      this.error = this.fail(error)
    }
    this.changed()
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
