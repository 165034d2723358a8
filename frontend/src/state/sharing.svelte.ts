/** The link to the analysis or study on screen: created on request, and revoked. */
import type { Shares } from '../lib/data/shares'

export class Sharing {
  open = $state(false)
  /** Empty before it is created and after it is revoked. */
  key = $state('')
  error = $state('')

  constructor(readonly shares: Shares | undefined) {}

  start = (id: string): Promise<void> =>
    this.#do(async (shares) => {
      this.key = await shares.share(id)
    })

  stop = (id: string): Promise<void> =>
    this.#do(async (shares) => {
      await shares.unshare(id)
      this.key = ''
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
