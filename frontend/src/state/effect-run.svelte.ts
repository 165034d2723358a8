/** Effects of one kind: the one that was computed last, and the one that is being computed. */
import type { Effect, EffectRequest } from '../lib/data/effects'
import { errorSentence } from '../lib/data/source'
import { latest } from '../lib/net/latest'

/** An effect of an analysis; `key` is all that it depends on. */
export interface WantedEffect {
  key: string
  id: string
  model: string
  request: EffectRequest
  /** The input: effects of the same request on it are the same. */
  about: string
}

export type Compute = (wanted: WantedEffect, report: (done: number) => void, signal: AbortSignal) => Promise<Effect>

/** Answers that are kept, so that switching back takes no time. */
const KEPT = 24

export class EffectRun {
  found = $state.raw<{ wanted: WantedEffect; effect: Effect }>()
  failed = $state.raw<{ key: string; message: string }>()
  /** The key of what is being computed; empty if nothing is. */
  running = $state('')
  /** The fraction of it that is done. */
  done = $state(0)
  readonly #kept = new Map<string, Effect>()
  readonly #task

  constructor(
    compute: Compute,
    private readonly most = KEPT,
  ) {
    this.#task = latest((signal, wanted: WantedEffect) => compute(wanted, (done) => (this.done = done), signal))
  }

  /** What was computed before. */
  kept = (key: string): Effect | undefined => this.#kept.get(key)

  /** The effect, if it is what is wanted. */
  current(wanted: WantedEffect | undefined): Effect | undefined {
    return wanted && this.found?.wanted.key === wanted.key ? this.found.effect : undefined
  }

  /** Why there is no effect; empty if nothing went wrong. */
  error(wanted: WantedEffect | undefined): string {
    return wanted && this.failed?.key === wanted.key ? this.failed.message : ''
  }

  isRunning = (wanted: WantedEffect | undefined): boolean => wanted !== undefined && this.running === wanted.key

  async ask(wanted: WantedEffect, again = false): Promise<void> {
    const { key } = wanted
    if (this.running === key || (this.failed?.key === key && !again)) return
    const kept = this.#kept.get(key)
    if (kept) {
      this.stop()
      this.found = { wanted, effect: kept }
      return
    }
    this.running = key
    this.done = 0
    this.failed = undefined
    try {
      const effect = await this.#task(wanted)
      if (effect) this.#keep(wanted, effect)
    } catch (error) {
      this.failed = { key, message: errorSentence(error, 'Try again.') }
    }
    if (this.running === key) this.running = ''
  }

  #keep(wanted: WantedEffect, effect: Effect): void {
    this.#kept.set(wanted.key, effect)
    const [oldest] = this.#kept.keys()
    if (this.#kept.size > this.most) this.#kept.delete(oldest)
    this.found = { wanted, effect }
  }

  stop(): void {
    if (this.running !== '') this.#task.stop()
    this.running = ''
  }
}
