/** A reader's session: the catalogue, the current run, and the analysis on screen. */
import { type Analysis, type KindSupport, type Request, type Run, sharedLenses } from '../lib/data/analysis'
import { firstThatFits, smallerRequests, withLeftOut } from '../lib/data/fitting'
import { unlistedModel } from '../lib/data/models'
import { type Catalogue, errorSentence, type Source, SourceError } from '../lib/data/source'
import { isOver } from '../lib/data/studies'
import { mark } from '../lib/drawing/frame'
import { latest } from '../lib/net/latest'
import { Comparison } from './comparison.svelte'
import { LiveRuns } from './live-runs'
import { Maps } from './maps.svelte'
import { changesBetween, type OpenAnalysis } from './open-analysis'
import { explainRefusal, failureOf, isStranger } from './refusals'

interface Ticket {
  cancelled: boolean
  /** Requested by this reader, who may cancel it. */
  ours: boolean
  /** Requested while typing: forgotten once something else is on screen, and its errors are not shown. */
  live: boolean
}

const OURS: Ticket = { cancelled: false, ours: true, live: false }

interface Submit {
  /** What is requested; undefined for an existing analysis. */
  request?: Request
  send: (signal: AbortSignal) => Promise<Analysis>
}

export class Session {
  catalogue = $state.raw<Catalogue>()
  /** By model. What is unknown counts as supported; the server rejects it otherwise. */
  support = $state.raw<Record<string, KindSupport[]>>({})
  shown = $state.raw<OpenAnalysis>()
  run = $state.raw<Run>()
  error = $state('')
  /** The number of tokens that would be accepted; 0 if the length is not the problem. */
  fits = $state(0)
  /** The largest number of bytes that would be accepted; 0 if these are not the problem. */
  bytes = $state(0)
  /** The source could not be reached. */
  unreachable = $state(false)
  /** Milliseconds since the request. */
  elapsed = $state(0)
  /** Milliseconds since the run began; 0 while it waits. */
  ran = $state(0)

  /** The run that may change the screen; cancelling it takes this right away. */
  #ticket: Ticket = { ...OURS }
  #liveRuns = new LiveRuns((id) => this.source.cancel(id))
  #clock: ReturnType<typeof setInterval> | undefined
  /** When the run began. */
  #began: number | undefined
  #task = latest((signal, asks: Submit[], lens: string, ticket: Ticket) => this.#fit(signal, asks, lens, ticket))

  /** `onstranger` is called when the source requires signing in. */
  constructor(
    readonly source: Source,
    readonly onstranger: (insist: boolean) => void = () => {},
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

  /** Look up the models again after one was added or removed. */
  async renew(model: string): Promise<void> {
    await this.start()
    const { [model]: _, ...rest } = this.support
    this.support = rest
    await this.learn(model)
  }

  /** Look up what a model supports, until it is known. */
  async learn(model: string): Promise<void> {
    if (model === '' || this.support[model]) return
    const known = await this.source.support(model).catch(() => undefined)
    if (known) this.support = { ...this.support, [model]: known }
  }

  /** Returns whether the new analysis is on screen, with the one it is compared with. */
  submit(
    request: Request,
    lens: string,
    live = false,
    beside?: () => Promise<OpenAnalysis | undefined>,
  ): Promise<boolean> {
    mark('submit')
    // A live run is not aborted until its id is known, so that it can be forgotten.
    const ask = (one: Request): Submit => ({
      request: one,
      send: (signal) =>
        this.source.submit(one, live ? new AbortController().signal : signal).catch((error) => {
          throw explainRefusal(error, one, this.catalogue?.models ?? [])
        }),
    })
    return this.#run([request, ...smallerRequests(request, lens)].map(ask), lens, { ...OURS, live }, beside)
  }

  /** Show an existing analysis, through another lens if it lacks this one; returns whether it is on screen. */
  async read(id: string, lens: string): Promise<boolean> {
    const ask: Submit = { send: (signal) => this.source.analysis(id, signal) }
    const done = await this.#run([ask], lens, { ...OURS, ours: false })
    const { catalogue, shown } = this
    if (!done || !catalogue || !shown || catalogue.models.some(({ name }) => name === shown.analysis.model)) return done
    // A shared analysis may be of a model that the reader's catalogue lacks.
    this.catalogue = { ...catalogue, models: [...catalogue.models, unlistedModel(shown.analysis)] }
    return true
  }

  /** Run the first request that fits. */
  async #run(
    asks: Submit[],
    lens: string,
    ticket: Ticket,
    beside?: () => Promise<OpenAnalysis | undefined>,
  ): Promise<boolean> {
    this.#begin(ticket)
    try {
      const [first, second] = [this.#task(asks, lens, ticket), beside?.()]
      const shown = await first
      if (!shown || ticket.cancelled) return false
      const compared = await this.#compared(shown, await second)
      if (this.#ticket !== ticket || ticket.cancelled) return false
      this.#change(compared, ticket)
      this.#end()
      return true
    } catch (error) {
      if (this.#ticket !== ticket || ticket.cancelled) return false
      this.#end()
      if (!ticket.live || isStranger(error)) this.fail(error, !ticket.live)
      return false
    }
  }

  /** With its comparison. */
  async #compared(shown: OpenAnalysis, second: OpenAnalysis | undefined): Promise<OpenAnalysis> {
    const { comparisons } = this.source
    const [one, other] = [shown.analysis, second?.analysis ?? shown.analysis]
    const alignment = comparisons && other.id !== one.id ? await comparisons.tokens(one.id, other.id) : null
    const comparison = new Comparison(comparisons, one, other, alignment, this.fail)
    const itself = other === one ? comparison : new Comparison(comparisons, one, one, null, this.fail)
    return { ...shown, second, comparison, itself: comparisons && itself }
  }

  #change(shown: OpenAnalysis, { live }: Ticket): void {
    const changes = live && this.shown ? changesBetween(this.shown, shown) : undefined
    this.shown = { ...shown, changes }
    this.#liveRuns.sweep(shown.analysis.id)
  }

  async cancel(): Promise<void> {
    const { run } = this
    if (!run) return
    this.#ticket.cancelled = true
    this.error = ''
    this.#end()
    // Without an id yet, #show cancels as soon as it has one.
    if (!run.id) return
    this.#task.stop()
    if (this.#ticket.ours) await this.#stop(run).catch(() => {})
  }

  /** What has ended is kept: the source would delete it. */
  async #stop(run: Run): Promise<void> {
    if (!isOver(run)) await this.source.cancel(run.id)
  }

  /** `insist`: the reader requested what failed, not the page by itself. */
  fail = (error: unknown, insist = false): void => {
    if (isStranger(error)) {
      this.onstranger(insist)
      return
    }
    this.say(errorSentence(error, 'Your text is kept.'))
    if (!(error instanceof SourceError)) return
    const { code, limit, actual } = error
    // Of a text with too many bytes, the first tokens are in the bytes that are accepted.
    this.fits = { 'too-many-tokens': limit, 'too-many-bytes': actual }[code] ?? 0
    this.bytes = code === 'too-many-bytes' ? (limit ?? 0) : 0
    this.unreachable = code === 'unreachable'
  }

  /** The message for an error. */
  say(error: string): void {
    this.error = error
    this.fits = 0
    this.bytes = 0
    this.unreachable = false
  }

  #begin(ticket: Ticket): void {
    const started = performance.now()
    this.error = ''
    this.#ticket = ticket
    this.elapsed = 0
    this.ran = 0
    this.#began = undefined
    this.run = {
      id: '',
      status: 'queued',
      progress: { fraction: 0, stage: 'sending', detail: '', position: null },
      attempts: 1,
      error: null,
    }
    clearInterval(this.#clock)
    this.#clock = setInterval(() => {
      const now = performance.now()
      this.elapsed = now - started
      this.ran = this.#began === undefined ? 0 : now - this.#began
    }, 250)
  }

  #end(): void {
    clearInterval(this.#clock)
    this.run = undefined
  }

  async #fit(signal: AbortSignal, asks: Submit[], lens: string, ticket: Ticket): Promise<OpenAnalysis | undefined> {
    const { found, refused } = await firstThatFits(asks, (ask) => this.#show(signal, ask, lens, ticket))
    return found && refused ? { ...found, analysis: withLeftOut(found.analysis, refused) } : found
  }

  async #show(signal: AbortSignal, ask: Submit, lens: string, ticket: Ticket): Promise<OpenAnalysis | undefined> {
    const answer = await ask.send(signal)
    const reading = new AbortController()
    if (!ticket.live) this.#liveRuns.keep(answer.id)
    // What existed before is kept.
    else if (!answer.stored) this.#liveRuns.add(answer.id, reading)
    if (ticket.cancelled || signal.aborted) {
      if (ticket.ours && ticket.cancelled) await this.#stop(answer)
      else if (!this.run) this.#liveRuns.sweep(this.shown?.analysis.id)
      return undefined
    }
    // Only the last request counts, so earlier runs are released.
    this.#liveRuns.sweep(answer.id, this.shown?.analysis.id)
    const run = await this.#follow(answer, signal)
    // Superseded by a newer run.
    if (signal.aborted) return undefined
    if (run.status === 'failed') throw failureOf(run)
    if (run.status === 'cancelled')
      throw new SourceError('The analysis was cancelled. Your text is kept.', 'cancelled', 409)
    let about: Analysis | undefined
    // Errors of maps that are no longer on screen are ignored, as they may have been deleted.
    const failed = (error: unknown) => {
      if (this.shown?.maps === maps) this.fail(error)
    }
    const model = this.catalogue?.models.find(({ name }) => name === answer.model)
    const heads = model ? model.layers * model.heads : 0
    const maps: Maps = new Maps(this.source, run.id, failed, reading.signal, () => about, heads)
    if (ask.request && this.shown?.request) maps.inherit(this.shown.maps, sharedLenses(this.shown.request, ask.request))
    const opened = answer.lenses.includes(lens) ? lens : (answer.lenses[0] ?? lens)
    // The first picture needs the document and one grid, fetched in parallel.
    const document = run === answer ? answer : this.source.analysis(run.id, signal)
    const [analysis] = await Promise.all([document, maps.firstGrid(opened)])
    about = analysis
    // A stored result took its time in another run.
    return {
      analysis: run === answer ? { ...analysis, totalMs: null } : analysis,
      maps,
      lens: opened,
      request: ask.request,
    }
  }

  async #follow(first: Run, signal: AbortSignal): Promise<Run> {
    let run = first
    const report = (now: Run) => {
      run = now
      if (signal.aborted || !this.run) return
      this.run = now
      this.#began = now.status === 'running' ? (this.#began ?? performance.now()) : undefined
    }
    report(first)
    if (!isOver(run)) await this.source.watch(run.id, report, signal)
    return run
  }
}
