/** The studies of this reader, the newest first; looked up again while one of them runs. */
import { isOver, type Studies, type StudyItem } from '../lib/studies'

const AGAIN_MS = 4000

export class StudyList {
  /** Undefined until the first answer. */
  items = $state.raw<StudyItem[]>()
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(
    readonly studies: Studies,
    private readonly fail: (error: unknown) => void,
  ) {}

  load = async (): Promise<void> => {
    clearTimeout(this.#timer)
    try {
      this.items = await this.studies.list()
      if (this.items.some((item) => !isOver(item))) this.#timer = setTimeout(() => void this.load(), AGAIN_MS)
    } catch (error) {
      this.fail(error)
    }
  }

  /** The list is on screen no more. */
  stop(): void {
    clearTimeout(this.#timer)
  }
}
