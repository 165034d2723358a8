/** What heads do to a prediction of the analysis on screen: what is predicted, the target, the grid by effect, and what happens without some heads. */
import { type Analysis, type Declaration, type Head, headName, type Predicts, type Reasons } from '../lib/data/analysis'
import {
  type Effect,
  type EffectColours,
  type EffectRequest,
  type Effects,
  effectNumber,
  inputKey,
  isEffect,
  methodOf,
  type Target,
  toggleTarget,
  writeTarget,
} from '../lib/data/effects'
import { SourceError } from '../lib/data/source'
import { headsOf } from '../lib/data/subset'
import { sameHead } from '../lib/maths/merge'
import { everyHead, headPoints, rankCorrelation } from '../lib/maths/scatter'
import { NOT_SOFTMAX, PIN, targetPlace } from '../lib/text/effects'
import { EffectMap } from './effect-map.svelte'
import { EffectMethods } from './effect-methods.svelte'
import { type Compute, EffectRun, type WantedEffect } from './effect-run.svelte'
import { HeadScore } from './head-score.svelte'
import type { Pointer } from './pointer.svelte'
import type { Selection } from './selection.svelte'
import { inPlaceOfEffects } from './selection-fields'
import type { Session } from './session.svelte'

export class HeadEffects {
  readonly methods: EffectMethods
  readonly predicted: EffectRun
  readonly grid: EffectRun
  readonly without: EffectRun
  readonly written: EffectRun
  /** The maps of an effect, chosen as the lens. */
  readonly map: EffectMap
  /** Why the open head looks at the pinned cell. */
  readonly score: HeadScore

  readonly open: boolean = $derived.by(
    () => this.able && (this.selection.predict || [this.selection.colour, this.selection.lens].some(isEffect)),
  )
  readonly #analysis: Analysis | undefined = $derived.by(() => this.session.shown?.analysis)
  readonly predicts: Predicts | null = $derived.by(
    () => this.session.catalogue?.models.find(({ name }) => name === this.#analysis?.model)?.predicts ?? null,
  )
  /** Why the model lacks a method, by name; null if it does not. */
  readonly #support: Reasons | undefined = $derived.by(
    () => this.session.support[this.#analysis?.model ?? '']?.find(({ kind }) => kind === this.#analysis?.kind)?.effects,
  )
  /** Why nothing is predicted; empty if something is. */
  readonly reason: string = $derived.by(() => {
    const analysis = this.#analysis
    if (!analysis) return ''
    const refused = this.methods.all.map(({ name }) => this.#support?.[name] ?? '')
    if (refused.length > 0 && refused.every(Boolean)) return refused[0]
    if (analysis.mechanism !== 'softmax') return NOT_SOFTMAX
    return this.position === undefined ? PIN : ''
  })
  /** The token at which the model predicts: the pinned one, or else the last, or the masked one. Null for the whole input, undefined if there is none. A pin in the map of an effect moves it only if it has no other place. */
  readonly position: number | null | undefined = $derived.by(() => {
    const analysis = this.#analysis
    if (!analysis || this.predicts === 'class') return null
    const { at } = this.selection
    if (!this.map.method) return this.pinned ?? this.#ownPlace
    return at !== undefined && at < analysis.tokens.length ? at : (this.#ownPlace ?? this.pinned)
  })
  /** Where the model predicts by itself. */
  readonly #ownPlace: number | undefined = $derived.by(() => {
    const { tokens = [] } = this.#analysis ?? {}
    if (this.predicts !== 'masked-token') return tokens.length - 1
    const masked = tokens.flatMap(({ text, kind }, at) => (kind === 'special' && /mask/i.test(text) ? [at] : []))
    return masked.length === 1 ? masked[0] : undefined
  })
  /** What effects of the analysis depend on, whatever it was read through. */
  readonly about: string = $derived.by(() => (this.#analysis ? inputKey(this.#analysis) : ''))
  readonly wantedPrediction: WantedEffect | undefined = $derived.by(() =>
    this.want({ method: { name: 'contribution' } }),
  )
  /** Which three tokens every head raises most, and lowers most, whatever the target. */
  readonly wantedWrites: WantedEffect | undefined = $derived.by(() => this.wantMethod('contribution', { target: [] }))
  readonly wantedGrid: WantedEffect | undefined = $derived.by(() => {
    const name = methodOf(this.selection.colour)
    return name === 'contribution' ? this.wantedPrediction : this.wantMethod(name)
  })
  readonly wantedWithout: WantedEffect | undefined = $derived.by(() => {
    const { off } = this.selection
    return off.length > 0 ? this.wantMethod('ablation', { heads: off }) : undefined
  })
  /** The estimate of what the grid shows, or what it estimates, and Spearman's rank correlation of both; undefined unless both were computed. */
  readonly agreement: { method: Declaration; correlation: number } | undefined = $derived.by(() => {
    const [shown, analysis] = [this.grid.current(this.wantedGrid), this.#analysis]
    const method = this.methods.counterpart(methodOf(this.selection.colour))
    const wanted = method && this.want(method.request)
    const other = wanted && this.grid.kept(wanted.key)
    if (!method || !shown || !other || !analysis) return undefined
    const { points } = headPoints(shown.values, other.values, everyHead(analysis.layers, analysis.heads))
    const correlation = rankCorrelation(points)
    return Number.isNaN(correlation) ? undefined : { method: method.declaration, correlation }
  })
  readonly colours: EffectColours | undefined = $derived.by(() => this.#colours())

  constructor(
    private readonly source: Effects | undefined,
    private readonly selection: Selection,
    private readonly session: Session,
    private readonly pointer: Pointer,
  ) {
    this.methods = new EffectMethods(selection, session)
    const compute: Compute = ({ id, request }, report, signal) => this.source!.compute(id, request, report, signal)
    this.predicted = new EffectRun((wanted, report, signal) =>
      compute(wanted, report, signal).catch((error) => {
        // The parts of some models do not sum to their logits; they predict all the same.
        if (!(error instanceof SourceError) || error.code !== 'unsupported') throw error
        const request: EffectRequest = { ...wanted.request, method: { name: 'ablation' }, heads: [this.#someHead()] }
        return compute({ ...wanted, request }, report, signal).then((effect) => ({
          ...effect,
          values: [],
          gap: error.message,
        }))
      }),
    )
    this.grid = new EffectRun(compute)
    this.without = new EffectRun(compute)
    this.written = new EffectRun(compute, 2)
    this.map = new EffectMap(this, selection, compute)
    this.score = new HeadScore(this, selection, session, pointer, compute)
  }

  /** Why there are no effects of this method; empty if there are. */
  refusal = (method: string): string => this.reason || this.lack(method)

  /** Why the model lacks this method; empty if it does not. */
  lack = (method: string): string => this.#support?.[method] ?? ''

  /** A method with its parameters as chosen; undefined while something is missing. */
  wantMethod(name: string | undefined, more: Partial<EffectRequest> = {}): WantedEffect | undefined {
    const request = this.methods.request(name)
    return request && this.want({ ...request, ...more })
  }

  /** Choose parameters of a method, as JSON, and compute it. */
  adjust(method: string, params: string): void {
    this.choose({ effectparams: this.selection.withEffectParams(method, params) })
  }

  /** The source computes effects. */
  get able(): boolean {
    return this.source !== undefined
  }

  get #gridRun(): EffectRun {
    return methodOf(this.selection.colour) === 'contribution' ? this.predicted : this.grid
  }

  /** The prediction, if it is that of the text, token and target on screen. */
  get prediction(): Effect | undefined {
    return this.predicted.current(this.wantedPrediction)
  }

  /** The prediction on screen; while another one is computed, the previous one of the same model. */
  get lastPrediction(): Effect | undefined {
    const { found } = this.predicted
    return found?.wanted.model === this.#analysis?.model ? found?.result : undefined
  }

  #someHead(): Head {
    const subset = this.#analysis?.subset
    return subset ? headsOf(subset, false)[0] : { layer: 0, head: 0 }
  }

  want(request: Partial<EffectRequest> & Pick<EffectRequest, 'method'>): WantedEffect | undefined {
    const { id, model } = this.#analysis ?? {}
    if (!this.able || !id || !model || this.reason !== '' || this.position === undefined) return undefined
    const whole: EffectRequest = { target: this.selection.target, position: this.position, ...request }
    return { id, model, request: whole, about: this.about, key: JSON.stringify([this.about, whole]) }
  }

  #colours(): EffectColours | undefined {
    const method = this.methods.find(methodOf(this.selection.colour))
    // The panel of predictions shows the reason.
    if (!method || !this.able || this.reason !== '') return undefined
    const [run, wanted] = [this.#gridRun, this.wantedGrid]
    const { found } = run
    const fresh = run.current(wanted)
    // Until there are others: those of another method would get the wrong name.
    const same =
      found?.wanted.model === this.#analysis?.model && found?.wanted.request.method.name === wanted?.request.method.name
    const values = same ? found?.result.values : undefined
    const failed = this.predicted.error(this.wantedPrediction) ? 'Not available.' : ''
    const said = failed || this.methods.missing(method.name) || run.error(wanted) || fresh?.gap || ''
    return {
      declaration: effectNumber(method),
      values: fresh?.gap ? undefined : values,
      stale: !fresh,
      running: run.isRunning(wanted),
      about: found ? targetPlace(found.result.target.texts, found.wanted.request.position) : '',
      said:
        said ||
        (run.isRunning(wanted)
          ? `Computing \u2026 ${Math.round(100 * run.done)}\u00a0%`
          : fresh
            ? ''
            : 'Not computed for this text and target.'),
    }
  }

  /** The grid shows what the controls say, or is about to. */
  get settled(): boolean {
    const { wantedGrid } = this
    return !wantedGrid || this.#gridRun.current(wantedGrid) !== undefined || this.#gridRun.isRunning(wantedGrid)
  }

  /** Compute what is cheap, and show what was computed before. */
  refresh(): void {
    if (this.wantedPrediction) void this.predicted.ask(this.wantedPrediction)
    if (this.wantedWithout) void this.without.ask(this.wantedWithout)
    else this.without.stop()
    if (this.wantedGrid && this.grid.kept(this.wantedGrid.key)) void this.grid.ask(this.wantedGrid)
    // What was only passed on the way to something else is not computed to the end.
    else if (!this.grid.isRunning(this.wantedGrid)) this.grid.stop()
  }

  /** Compute the grid. */
  compute(): void {
    if (this.wantedGrid && this.#gridRun === this.grid) void this.grid.ask(this.wantedGrid, true)
  }

  /** The one token that is pinned as a query. */
  get pinned(): number | undefined {
    const { queries } = this.pointer.pins
    return queries.length === 1 ? queries[0] : undefined
  }

  /** The pinned token at which the model could predict while the maps of an effect are open. */
  get elsewhere(): number | undefined {
    return this.map.method && this.position !== null && this.pinned !== this.position ? this.pinned : undefined
  }

  /** While the maps of an effect are open, predict at this token. */
  predictAt(token: number): void {
    this.selection.set({ at: String(token) })
  }

  /** Choose what the grid shows, or how its heads are replaced, and compute it. */
  choose(patch: Parameters<Selection['set']>[0]): void {
    this.selection.set({ predict: 'show', ...patch })
    this.compute()
  }

  toggle(): void {
    if (this.open) this.close()
    else if (this.able) this.selection.set({ predict: 'show' })
  }

  /** Cancel what is being computed and shows it; returns whether anything was. */
  cancel(): boolean {
    const runs = [this.predicted, this.grid, this.without, this.map.run, this.score.run]
    return runs.filter((run) => run.cancel()).length > 0
  }

  close(): void {
    for (const run of [this.predicted, this.grid, this.without, this.written]) run.stop()
    this.selection.set({ predict: '', off: '', ...inPlaceOfEffects(this.selection) })
  }

  aim(target: Target): void {
    this.selection.set({ target: writeTarget(target) })
  }

  toggleTarget(id: number): void {
    this.aim(toggleTarget(this.selection.target, id))
  }

  isOff = (head: Head): boolean => this.selection.off.some((one) => sameHead(one, head))

  switchOff(heads: readonly Head[]): void {
    this.selection.set({ predict: 'show', off: heads.map(headName).join(' ') })
  }

  /** Switch a head off, or on again. */
  toggleHead(head: Head): void {
    const { off } = this.selection
    this.switchOff(this.isOff(head) ? off.filter((one) => !sameHead(one, head)) : [...off, head])
  }
}
