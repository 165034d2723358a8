/** One reader at the page: what can be run, what runs, and the analysis on screen. */
import type { Analysis, KindSupport, Request, Run } from '../lib/analysis'
import { mark } from '../lib/frame'
import { latest } from '../lib/latest'
import { problemSentence } from '../lib/problem'
import { type Catalogue, type Source, SourceError } from '../lib/source'
import { Maps } from './maps.svelte'

interface Ticket {
  cancelled: boolean
  /** Asked for by this reader, who may cancel it then. */
  ours: boolean
}

type Ask = (signal: AbortSignal) => Promise<Analysis>

/** What is on screen together: swapped in one step, so that nothing on it is ever half old. */
export interface Shown {
  analysis: Analysis
  maps: Maps
  /** The lens it was asked to open with. */
  lens: string
}

/** Names of the lenses with one map per layer. */
export const layeredIn = ({ maps, heads }: Analysis): ReadonlySet<string> =>
  new Set(Object.keys(maps).filter((lens) => heads > 1 && maps[lens].shape[1] === 1))

export class Session {
  catalogue = $state.raw<Catalogue>()
  /** By model; what is not known yet counts as supported, and the server says otherwise. */
  support = $state.raw<Record<string, KindSupport[]>>({})
  shown = $state.raw<Shown>()
  run = $state.raw<Run>()
  error = $state('')
  /** Milliseconds since the button was pressed. */
  elapsed = $state(0)

  /** The run that may still change what is on screen; a cancelled one has lost it. */
  #ticket: Ticket = { cancelled: false, ours: true }
  #clock: ReturnType<typeof setInterval> | undefined
  #task = latest((signal, ask: Ask, lens: string, ticket: Ticket) => this.#show(signal, ask, lens, ticket))

  /** `onstranger`: the source wants to know who asks. */
  constructor(
    readonly source: Source,
    readonly onstranger: () => void = () => {},
  ) {}

  get busy(): boolean {
    return this.run !== undefined
  }

  async start(): Promise<void> {
    try {
      this.catalogue = await this.source.catalogue()
    } catch (error) {
      this.fail(error)
    }
  }

  /** Learns what a model supports, once. */
  async learn(model: string): Promise<void> {
    if (model === '' || this.support[model]) return
    const known = await this.source.support(model).catch(() => [])
    this.support = { ...this.support, [model]: known }
  }

  /** Answers whether the new analysis is on screen. */
  submit(request: Request, lens: string): Promise<boolean> {
    mark('submit')
    return this.#run((signal) => this.source.submit(request, signal), lens, { cancelled: false, ours: true })
  }

  /** Shows an analysis that somebody has asked for already, through another lens if it was not read through this one; answers whether it is on screen. */
  async read(id: string, lens: string): Promise<boolean> {
    const ask: Ask = (signal) => this.source.analysis(id, signal)
    const done = await this.#run(ask, lens, { cancelled: false, ours: false })
    if (done && this.shown) this.#name(this.shown.analysis)
    return done
  }

  /** A model that is not on the reader's own list has its name all the same. */
  #name({ model, layers, heads, headWidth, picture }: Analysis): void {
    if (!this.catalogue || this.catalogue.models.some(({ name }) => name === model)) return
    const known = { name: model, title: model, layers, heads, headWidth, description: '' }
    const kind = picture ? ('vision' as const) : ('encoder' as const)
    const unknown = { kind, maxTokens: null, available: true, local: true, isDefault: false, reason: null }
    this.catalogue = { ...this.catalogue, models: [...this.catalogue.models, { ...known, ...unknown }] }
  }

  async #run(ask: Ask, lens: string, ticket: Ticket): Promise<boolean> {
    this.#begin(ticket)
    try {
      const shown = await this.#task(ask, lens, ticket)
      if (!shown || ticket.cancelled) return false
      this.shown = shown
      this.#end()
      return true
    } catch (error) {
      if (this.#ticket !== ticket || ticket.cancelled) return false
      this.#end()
      this.fail(error)
      return false
    }
  }

  async cancel(): Promise<void> {
    const id = this.run?.id
    if (!this.run) return
    this.#ticket.cancelled = true
    this.error = ''
    this.#end()
    // Without an id yet, #show cancels as soon as it learns it.
    if (!id) return
    this.#task.stop()
    if (!this.#ticket.ours) return
    await this.source.cancel(id).catch(() => {})
  }

  fail = (error: unknown): void => {
    if (error instanceof SourceError && error.status === 401) {
      this.onstranger()
      return
    }
    this.error =
      error instanceof SourceError
        ? error.message
        : `Something went wrong in the page: ${String(error)}. Your text is kept.`
  }

  #begin(ticket: Ticket): void {
    const started = performance.now()
    this.error = ''
    this.#ticket = ticket
    this.elapsed = 0
    this.run = {
      id: '',
      status: 'queued',
      progress: { fraction: 0, stage: 'sending', detail: '', position: null },
      attempts: 1,
      error: null,
    }
    clearInterval(this.#clock)
    this.#clock = setInterval(() => {
      this.elapsed = performance.now() - started
    }, 250)
  }

  #end(): void {
    clearInterval(this.#clock)
    this.run = undefined
  }

  async #show(signal: AbortSignal, ask: Ask, lens: string, ticket: Ticket): Promise<Shown | undefined> {
    const answer = await ask(signal)
    if (ticket.cancelled) {
      if (ticket.ours) await this.source.cancel(answer.id)
      return undefined
    }
    const run = await this.#follow(answer, signal)
    // Superseded by a newer run: nothing of this one is wanted any more.
    if (signal.aborted) return undefined
    if (run.status === 'failed') throw failure(run)
    if (run.status === 'cancelled')
      throw new SourceError('The analysis was cancelled. Your text is kept.', 'cancelled', 409)
    let layered: ReadonlySet<string> = new Set()
    const maps = new Maps(this.source, run.id, this.fail, () => layered)
    const opened = answer.lenses.includes(lens) ? lens : (answer.lenses[0] ?? lens)
    // The first picture needs the document and one grid: both at once.
    const document = run === answer ? answer : this.source.analysis(run.id, signal)
    const [analysis] = await Promise.all([document, maps.firstGrid(opened)])
    layered = layeredIn(analysis)
    return { analysis, maps, lens: opened }
  }

  async #follow(first: Run, signal: AbortSignal): Promise<Run> {
    let run = first
    const report = (now: Run) => {
      run = now
      if (!signal.aborted && this.run) this.run = now
    }
    report(first)
    if (run.status === 'queued' || run.status === 'running') await this.source.watch(run.id, report, signal)
    return run
  }
}

const failure = ({ error }: Run) =>
  new SourceError(
    problemSentence(error ?? { title: '', detail: '', code: '', status: 500 }),
    error?.code ?? 'failed',
    error?.status ?? 500,
  )
