/** The link to the analysis on screen: made when it is asked for, taken back when it is not wanted any more. */
import type { Accounts } from '../lib/source'

export class Sharing {
  open = $state(false)
  /** Empty before it is made and once it has been taken back. */
  key = $state('')
  error = $state('')

  constructor(readonly accounts: Accounts | undefined) {}

  start = (id: string): Promise<void> =>
    this.#do(async (accounts) => {
      this.key = await accounts.share(id)
    })

  stop = (id: string): Promise<void> =>
    this.#do(async (accounts) => {
      await accounts.unshare(id)
      this.key = ''
    })

  async #do(change: (accounts: Accounts) => Promise<void>): Promise<void> {
    if (!this.accounts) return
    this.error = ''
    try {
      await change(this.accounts)
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error)
    }
    this.open = true
  }
}
