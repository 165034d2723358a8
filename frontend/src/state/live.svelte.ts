/** Analyses while one types: whether it is done at all, and when. */

import { recall, remember } from '../lib/net/storage'
import { isShort } from '../lib/text/length'

const KEY = 'live'
/** A pause in typing, in ms: fast hands leave 80 from key to key, and what is not waited for is there sooner. */
const PAUSE_MS = 50

export class Live {
  on = $state(false)
  #timer: ReturnType<typeof setTimeout> | undefined

  /** `home`: whose machine does the work; a cluster that others use as well is asked only when a reader wants it. */
  start(home: string | undefined): void {
    const chosen = recall(KEY)
    this.on = chosen === null ? home === 'embedded' : chosen === 'on'
  }

  toggle(): void {
    this.on = !this.on
    remember(KEY, this.on ? 'on' : 'off')
    if (!this.on) this.stop()
  }

  /** Runs once the hand rests, unless it types on or the text is long. */
  typed(text: string, pair: string, run: () => void): void {
    this.stop()
    if (!this.on || text.trim() === '' || !isShort(text, pair)) return
    this.#timer = setTimeout(run, PAUSE_MS)
  }

  /** Nothing that waits is run any more. */
  stop(): void {
    clearTimeout(this.#timer)
  }
}
