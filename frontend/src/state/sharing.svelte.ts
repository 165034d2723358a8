/** The link to the analysis or study on screen: made when it is asked for, taken back when it is not wanted any more. */
import type { Shares } from '../lib/data/shares'

export class Sharing {
  open = $state(false)
  /** Empty before it is made and once it has been taken back. */
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
