/** One reader at the page: what can be run, what runs, and the analysis on screen. */
import type { Analysis, Request, Run } from '../lib/analysis'
import { mark } from '../lib/frame'
import { latest } from '../lib/latest'
import { type Catalogue, type Source, SourceError } from '../lib/source'
import { Maps } from './maps.svelte'

/** What is on screen together: swapped in one step, so that nothing on it is ever half old. */
export interface Shown {
  analysis: Analysis
  maps: Maps
}

export class Session {
  catalogue = $state.raw<Catalogue>()
  shown = $state.raw<Shown>()
  run = $state.raw<Run>()
  error = $state('')
  /** Set when the page itself could not start; the old picture does not exist then. */
  elapsed = $state(0)
  /** Counts what the reader submitted, for the views that mark the first paint after it. */
  submissions = $state(0)

  #cancelled = false
  #clock: ReturnType<typeof setInterval> | undefined
  #task = latest((signal, request: Request, lens: string) => this.#analyse(signal, request, lens))

  constructor(readonly source: Source) {}

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

  /** Answers whether the new analysis is on screen. */
  async submit(request: Request, lens: string): Promise<boolean> {
    mark('submit')
    this.#begin()
    try {
      const shown = await this.#task(request, lens)
      if (!shown) return false
      this.submissions += 1
      this.shown = shown
      this.#end()
      return true
    } catch (error) {
      this.#end()
      if (!this.#cancelled) this.fail(error)
      return false
    }
  }

  async cancel(): Promise<void> {
    const id = this.run?.id
    if (!this.run) return
    this.#cancelled = true
    this.error = ''
    // Without an id yet, #analyse cancels as soon as it learns it.
    if (!id) return
    this.#task.stop()
    this.#end()
    await this.source.cancel(id).catch(() => {})
  }

  fail = (error: unknown): void => {
    this.error =
      error instanceof SourceError
        ? error.message
        : `Something went wrong in the page: ${String(error)}. Your text is kept.`
  }

  #begin(): void {
    const started = performance.now()
    this.error = ''
    this.#cancelled = false
    this.elapsed = 0
    this.run = {
      id: '',
      status: 'queued',
      progress: { fraction: 0, stage: 'queued', detail: 'Sending the text', position: null },
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

  async #analyse(signal: AbortSignal, request: Request, lens: string): Promise<Shown> {
    let run = await this.source.submit(request, signal)
    if (this.#cancelled) {
      await this.source.cancel(run.id)
      throw new DOMException('cancelled', 'AbortError')
    }
    this.run = run
    if (run.status === 'queued' || run.status === 'running') {
      await this.source.watch(
        run.id,
        (now) => {
          run = now
          if (!signal.aborted) this.run = now
        },
        signal,
      )
    }
    if (run.status === 'failed') throw failure(run)
    if (run.status === 'cancelled')
      throw new SourceError('The analysis was cancelled. Your text is kept.', 'cancelled', 409)
    return this.#fetch(run.id, lens, signal)
  }

  /** The first picture needs the document and one grid: both at once. */
  async #fetch(id: string, lens: string, signal: AbortSignal): Promise<Shown> {
    const maps = new Maps(this.source, id, this.fail)
    const [analysis] = await Promise.all([this.source.analysis(id, signal), maps.firstGrid(lens)])
    return { analysis, maps }
  }
}

const failure = ({ error }: Run) =>
  new SourceError(
    error?.detail ?? 'The analysis failed. Your text is kept; try again.',
    error?.code ?? 'failed',
    error?.status ?? 500,
  )
