/** The link to an analysis or study: created on request, and revoked, even when another one is on screen by then. */
import type { Shares } from '../lib/data/shares'

export class Sharing {
  open = $state(false)
  /** What is shared, and its key; undefined before it is created and after it is revoked. */
  shared = $state.raw<{ id: string; key: string }>()
  error = $state('')

  constructor(readonly shares: Shares | undefined) {}

  start = (id: string): Promise<void> =>
    this.#do(async (shares) => {
      this.shared = undefined
      this.shared = { id, key: await shares.share(id) }
    })

  stop = (): Promise<void> =>
    this.#do(async (shares) => {
      if (this.shared) await shares.unshare(this.shared.id)
      this.shared = undefined
    })

  async #do(change: (shares: Shares) => Promise<void>): Promise<void> {
    if (!this.shares) return
    this.error = ''
    try {
      await change(this.shares)
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error)
    }
    this.open = true
  }
}
