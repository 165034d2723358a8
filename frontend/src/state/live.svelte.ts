/** Live analysis: whether it is on, and the debouncing of keystrokes. */

import { recall, remember } from '../lib/net/storage'
import { isShort } from '../lib/text/length'

const KEY = 'live'
/** The debounce interval. A held key repeats every 33 ms, and fast typists leave 80 ms between keys. */
const PAUSE_MS = 36

export class Live {
  on = $state(false)
  /** A text has been typed that is about to be analysed. */
  pending = $state(false)
  #timer: ReturnType<typeof setTimeout> | undefined

  /** `home` is where the work is done. On a shared cluster live analysis is off until the reader turns it on. */
  start(home: string | undefined): void {
    const chosen = recall(KEY)
    this.on = chosen === null ? home === 'embedded' : chosen === 'on'
  }

  toggle(): void {
    this.on = !this.on
    remember(KEY, this.on ? 'on' : 'off')
    if (!this.on) this.stop()
  }

  /** Run once typing pauses, unless the text is long. */
  typed(text: string, pair: string, run: () => void): void {
    this.stop()
    if (!this.on || text.trim() === '' || !isShort(text, pair)) return
    this.pending = true
    this.#timer = setTimeout(() => {
      this.pending = false
      run()
    }, PAUSE_MS)
  }

  /** Drop the pending run. */
  stop(): void {
    this.pending = false
    clearTimeout(this.#timer)
  }
}
