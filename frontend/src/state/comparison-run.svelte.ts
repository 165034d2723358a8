/** The run of the other analysis of a comparison: the request of the analysis on screen with one difference, and its own progress. */
import type { KindSupport, Method, Request, Run } from '../lib/data/analysis'
import { resolveMechanism, sameMethod, trainedMechanism } from '../lib/data/mechanism'
import { readParams } from '../lib/data/params'
import type { Source } from '../lib/data/source'
import type { OpenAnalysis } from './open-analysis'
import type { Selection } from './selection.svelte'
import { Session } from './session.svelte'

type ComparisonChoice = Pick<Selection, 'with' | 'than' | 'thanparams' | 'compare'>

/** What else has to be analysed, as one string; empty if nothing has. */
export const comparisonKey = ({ with: what, than, thanparams, compare }: ComparisonChoice): string =>
  compare === 'off' || what === 'lens' || what === 'head' || than.trim() === ''
    ? ''
    : JSON.stringify([what, than, thanparams])

/** The trained mechanisms of models, and what the other model supports, if known. */
interface KnownModels {
  own: (model: string) => Method
  support: KindSupport | undefined
}

/** Two models are compared as they were trained, unless another mechanism was chosen for the first. */
export function comparisonRequest(
  first: Request,
  { with: what, than, thanparams }: ComparisonChoice,
  known: KnownModels,
): Request {
  const request = { ...first, measures: [] }
  const { mask: _, ...unmasked } = request
  const own = known.own(first.model)
  if (what === 'mechanism') return { ...request, mechanism: resolveMechanism(own, than, readParams(thanparams)) }
  if (what === 'text') return { ...unmasked, text: than }
  const mechanism = sameMethod(first.mechanism, own) ? known.own(than) : first.mechanism
  const carried = first.lenses.filter(({ name }) => !known.support?.lenses[name])
  // Another model may split the text differently, or have no mask token.
  return { ...unmasked, model: than, mechanism, kind: '', lenses: carried }
}

export class ComparisonRun {
  readonly #session: Session
  /** The comparison that was requested with the analysis on screen. */
  #asked = ''

  constructor(source: Source, onstranger: (insist: boolean) => void) {
    this.#session = new Session(source, onstranger)
  }

  /** The request of the other analysis, if one is needed; it is remembered as requested. */
  async request(first: Request, selection: Selection, known: Session): Promise<Request | undefined> {
    this.#asked = comparisonKey(selection)
    this.dismiss()
    if (this.#asked === '') return undefined
    if (selection.with === 'model') await known.learn(selection.than)
    const own = (model: string) => trainedMechanism(known.catalogue?.models ?? [], model)
    return comparisonRequest(first, selection, { own, support: known.support[selection.than]?.[0] })
  }

  /** Whether the comparison on screen is the one that is selected, or failed. */
  isFor(selection: Selection, second: OpenAnalysis | undefined, lens: string): boolean {
    if (comparisonKey(selection) !== this.#asked) return false
    return second ? second.analysis.lenses.includes(lens) : this.#asked === '' || this.error !== ''
  }

  /** The other analysis; undefined if it failed, with `error` set. */
  async ask(request: Request, lens: string, live: boolean): Promise<OpenAnalysis | undefined> {
    return (await this.#session.submit(request, lens, live)) ? this.#session.shown : undefined
  }

  /** The run, whose progress says that it is for the comparison. */
  get run(): Run | undefined {
    const { run } = this.#session
    if (!run) return undefined
    const detail = ['for the comparison', run.progress.detail].filter(Boolean).join(', ')
    return { ...run, progress: { ...run.progress, detail } }
  }

  /** Milliseconds since it began. */
  get ran(): number {
    return this.#session.ran
  }

  get error(): string {
    return this.#session.error && `The comparison failed: ${this.#session.error}`
  }

  dismiss(): void {
    this.#session.error = ''
  }

  cancel(): Promise<void> {
    return this.#session.cancel()
  }
}
