/** Who is signed in at the page. On a server without users nobody is, and nobody is asked. */
import { type Accounts, SourceError } from '../lib/data/source'

export class Account {
  /** Null: nobody has to sign in, or nobody has. */
  user = $state<string | null>(null)
  /** What does the work, where that is known. */
  home = $state<string>()
  /** The server has said that it wants to know who asks. */
  wanted = $state(false)
  /** The panel that asks is open. */
  open = $state(false)
  error = $state('')
  busy = $state(false)
  /** Counts who has signed in: what was asked before the last one did speaks of somebody else. */
  #comings = 0

  constructor(readonly accounts: Accounts | undefined) {}

  /** Learns who is signed in. A server that wants to know says so by itself, on whatever is asked first. */
  async learn(): Promise<void> {
    const coming = this.#comings
    const visit = await this.accounts?.who().catch(() => null)
    if (coming !== this.#comings) return
    this.user = visit?.user ?? null
    this.home = visit?.home
  }

  ask = (): void => {
    this.user = null
    this.wanted = true
    this.open = true
  }

  /** Something was refused that may have been asked before the last one signed in. */
  doubted = async (): Promise<void> => {
    await this.learn()
    if (this.user === null) this.ask()
  }

  /**
   * Something was refused: to the reader (`insist`), or to the page, which asks for some things by itself. Who has closed the panel is left alone by the
   * page, and so is who has signed in since.
   */
  refused = async (insist: boolean): Promise<void> => {
    if (!insist) {
      if (!this.wanted) await this.learn()
      if (this.wanted || this.user !== null) return
    }
    this.ask()
  }

  /** Answers whether the token was taken. */
  async signIn(token: string): Promise<boolean> {
    if (!this.accounts || this.busy) return false
    this.busy = true
    this.error = ''
    try {
      this.user = await this.accounts.signIn(token)
      this.#comings += 1
      this.wanted = false
      this.open = false
      return true
    } catch (error) {
      this.error = refusal(error)
      return false
    } finally {
      this.busy = false
    }
  }

  /** A cookie that is gone already is as good as one given back. */
  async signOut(): Promise<void> {
    await this.accounts?.signOut().catch(() => {})
  }
}

const refusal = (error: unknown) => {
  if (!(error instanceof SourceError)) return 'Signing in failed in the page. Reload it and try again.'
  return error.status === 401
    ? 'This token is not known here, or not any more. Check that you copied all of it.'
    : error.message
}
