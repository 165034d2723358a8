/** Who is signed in. A server without users requires no one to sign in. */
import { type Accounts, SourceError } from '../lib/data/source'

export class Account {
  /** Null if no one has signed in, or no one needs to. */
  user = $state<string | null>(null)
  /** Where the work is done; undefined until known. */
  home = $state<string>()
  /** The server requires signing in. */
  wanted = $state(false)
  /** Whether the sign-in panel is open. */
  open = $state(false)
  error = $state('')
  /** The host of the identity provider; empty if there is none, or until known. */
  provider = $state('')
  busy = $state(false)
  /** Counts sign-ins: answers to requests sent before the last one are stale. */
  #signIns = 0

  constructor(readonly accounts: Accounts | undefined) {
    this.error = accounts?.refusal ?? ''
  }

  /** Look up who is signed in. A server that requires signing in rejects other requests, too, so a failure is ignored. */
  async learn(): Promise<void> {
    const before = this.#signIns
    const identity = await this.accounts?.who().catch(() => null)
    if (before !== this.#signIns) return
    this.user = identity?.user ?? null
    this.home = identity?.home
  }

  ask = (): void => {
    this.user = null
    this.wanted = true
    this.open = true
    void this.#learnProvider()
  }

  async #learnProvider(): Promise<void> {
    this.provider ||= (await this.accounts?.provider().catch(() => '')) ?? ''
  }

  /** Sign in with the identity provider, on its page. */
  leave = async (): Promise<void> => {
    if (!this.accounts || this.busy) return
    this.busy = true
    this.error = ''
    try {
      await this.accounts.leave()
    } catch (error) {
      this.error = error instanceof SourceError ? error.message : FAILED
    } finally {
      this.busy = false
    }
  }

  /** A request was refused that may have been sent before the last sign-in. */
  recheck = async (): Promise<void> => {
    await this.learn()
    if (this.user === null) this.ask()
  }

  /**
   * A request was refused: one of the reader (`insist`), or one that the page sent by itself. The latter neither reopens a panel that the
   * reader has closed, nor asks someone who has signed in since.
   */
  refused = async (insist: boolean): Promise<void> => {
    if (!insist) {
      if (!this.wanted) await this.learn()
      if (this.wanted || this.user !== null) return
    }
    this.ask()
  }

  /** Returns whether the token was accepted. */
  async signIn(token: string): Promise<boolean> {
    if (!this.accounts || this.busy) return false
    this.busy = true
    this.error = ''
    try {
      this.user = await this.accounts.signIn(token)
      this.#signIns += 1
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

  /** If the cookie has gone already, the reader is signed out. */
  async signOut(): Promise<void> {
    await this.accounts?.signOut().catch(() => {})
  }
}

const FAILED = 'Signing in failed. Reload the page and try again.'

const refusal = (error: unknown) => {
  if (!(error instanceof SourceError)) return FAILED
  return error.status === 401
    ? 'This access token is invalid or has been revoked. Check that you copied all of it.'
    : error.message
}
