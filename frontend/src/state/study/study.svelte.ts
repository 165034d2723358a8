/** One study: looked up, watched while it runs, cancelled or deleted. */

import { isOver, type Studies, type Study, type StudyRun } from '../../lib/data/studies'
import { latest } from '../../lib/net/latest'

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
    try {
      await this.#task(id)
    } catch (error) {
      this.error = this.fail(error)
    }
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

  delete = (): Promise<void> => this.#change((id) => this.studies.remove(id))

  async #change(how: (id: string) => Promise<void>): Promise<void> {
    const id = this.study?.id
    if (id === undefined) return
    try {
      await how(id)
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
