/** Computations of one kind: the one that was computed last, and the one that is being computed. */
import { errorSentence, SourceError } from '../lib/data/source'
import { latest } from '../lib/net/latest'

/** Results that are kept, so that switching back takes no time. */
const KEPT = 24

/** Why there is no result. `final`: another try fails, too; `lost`: the server could not be reached. */
interface Failure {
  key: string
  message: string
  final: boolean
  lost: boolean
}

/** `key` is all that a result depends on. */
export class KeyedRun<W extends { key: string }, T> {
  found = $state.raw<{ wanted: W; result: T }>()
  failed = $state.raw<Failure>()
  /** The key of what is being computed; empty if nothing is. */
  running = $state('')
  /** The fraction of it that is done. */
  done = $state(0)
  readonly #kept = new Map<string, T>()
  /** Counts computations, as the same may be asked for again before it has stopped. */
  #count = 0
  readonly #task

  constructor(
    compute: (wanted: W, report: (done: number) => void, signal: AbortSignal) => Promise<T>,
    private readonly most = KEPT,
  ) {
    this.#task = latest((signal, wanted: W) => {
      const report = (done: number) => {
        if (!signal.aborted) this.done = done
      }
      return compute(wanted, report, signal)
    })
  }

  /** What was computed before. */
  kept = (key: string): T | undefined => this.#kept.get(key)

  /** The result, if it is what is wanted. */
  current(wanted: W | undefined): T | undefined {
    return wanted && this.found?.wanted.key === wanted.key ? this.found.result : undefined
  }

  /** Why there is no result; empty if nothing went wrong. */
  error(wanted: W | undefined): string {
    return this.failure(wanted)?.message ?? ''
  }

  failure(wanted: W | undefined): Failure | undefined {
    return wanted && this.failed?.key === wanted.key ? this.failed : undefined
  }

  isRunning = (wanted: W | undefined): boolean => wanted !== undefined && this.running === wanted.key

  async ask(wanted: W, again = false): Promise<void> {
    const { key } = wanted
    if (this.running === key || (this.failed?.key === key && !again)) return
    const kept = this.#kept.get(key)
    if (kept) {
      this.stop()
      this.found = { wanted, result: kept }
      return
    }
    const count = ++this.#count
    this.running = key
    this.done = 0
    this.failed = undefined
    try {
      const result = await this.#task(wanted)
      if (result) this.#keep(wanted, result)
    } catch (error) {
      const { status, code } = error instanceof SourceError ? error : {}
      const message = errorSentence(error, 'Try again.')
      this.failed = { key, message, final: status === 422, lost: code === 'unreachable' }
    }
    if (this.#count === count) this.running = ''
  }

  #keep(wanted: W, result: T): void {
    this.#kept.set(wanted.key, result)
    const [oldest] = this.#kept.keys()
    if (this.#kept.size > this.most) this.#kept.delete(oldest)
    this.found = { wanted, result }
  }

  stop(): void {
    if (this.running !== '') this.#task.stop()
    this.running = ''
  }

  /** Stop it because the reader wishes so: it is computed again only when asked for. Returns whether anything was running. */
  cancel(): boolean {
    const key = this.running
    if (key === '') return false
    this.stop()
    this.failed = { key, message: 'Cancelled.', final: false, lost: false }
    return true
  }
}
