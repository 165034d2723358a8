/** What the page says about its runs: how far they are, and whether what is drawn is what the controls say. */
import type { Run } from '../lib/data/analysis'
import { isShort } from '../lib/text/length'
import { changeSentence, runSentence } from '../lib/text/words'
import type { Chosen } from '../state/chosen.svelte'
import type { ComparisonRun } from '../state/comparison-run.svelte'
import type { InputDraft } from '../state/input-draft.svelte'
import type { Live } from '../state/live.svelte'
import type { Session } from '../state/session.svelte'
import type { Drawn } from './drawn.svelte'
import type { Requests } from './requests.svelte'

interface Parts {
  chosen: Chosen
  drawn: Drawn
  requests: Requests
  session: Session
  comparisonRun: ComparisonRun
  draft: InputDraft
  live: Live
}

export class Status {
  readonly #parts: Parts

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** Of two runs, the one that is awaited. */
  get #awaited(): Run | undefined {
    const { session, comparisonRun } = this.#parts
    return session.run?.status === 'done' ? (comparisonRun.run ?? session.run) : session.run
  }

  /** How far that is; empty if nothing runs. */
  get #said(): string {
    const [run, { session, comparisonRun }] = [this.#awaited, this.#parts]
    return run ? runSentence(run, session.elapsed, (run === session.run ? session : comparisonRun).ran) : ''
  }

  /** The run that changes the pictures; a run that only adds measures reports its progress where they will appear. */
  get run(): Run | undefined {
    return this.#parts.requests.adding.length > 0 ? undefined : this.#awaited
  }

  get progress(): string {
    return this.run ? this.#said : ''
  }

  /** How far the run is that adds this measure; empty if none does. */
  adding = (measure: string): string => {
    return this.#awaited && this.#parts.requests.adding.includes(measure) ? this.#said || 'Computing …' : ''
  }

  /** What has changed since the pictures were drawn, and how to update them; empty while they match the controls or are being computed. */
  get outdated(): string {
    const { chosen, drawn, requests, draft, live, session } = this.#parts
    if (!requests.waiting || !drawn.changed) return ''
    const read = chosen.kind === 'vision' ? 'Image' : draft.byIds ? 'Token ids' : draft.byChat ? 'Conversation' : 'Text'
    const what = drawn.changed === 'Input' ? read : drawn.changed
    return changeSentence(what, what === 'Text' && live.on && !isShort(draft.text, draft.pair), session.error !== '')
  }
}
