/** The maps of an effect, which the open head shows as it shows those of a lens. */
import type { Declaration, MapInfo } from '../lib/data/analysis'
import { colourOf, type EffectRequest, hasMaps, methodOf } from '../lib/data/effects'
import { inPhrase } from '../lib/text/names'
import type { EffectMethods } from './effect-methods.svelte'
import { type Compute, EffectRun, type WantedEffect } from './effect-run.svelte'
import type { Selection } from './selection.svelte'

/** Requests for effects of the analysis on screen. */
interface Subject {
  /** The input, whatever it is read through. */
  readonly about: string
  readonly able: boolean
  /** Where the model predicts. */
  readonly position: number | null | undefined
  readonly methods: EffectMethods
  wantMethod(name: string): WantedEffect | undefined
}

interface ShownMaps {
  /** The name under which they are read. */
  name: string
  /** As that of a lens. */
  declaration: Declaration
  info: MapInfo
  request: EffectRequest
  /** The texts of the target. */
  texts: readonly string[]
}

export class EffectMap {
  readonly run: EffectRun
  /** The method whose maps are chosen as the lens. */
  readonly method: Declaration | undefined = $derived.by(() => {
    const method = this.of.methods.find(methodOf(this.selection.lens))
    return method && hasMaps(method) ? method : undefined
  })
  readonly wanted: WantedEffect | undefined = $derived.by(() => this.method && this.of.wantMethod(this.method.name))
  /** The maps on screen; while others are computed, the previous ones of the same input. */
  readonly shown: ShownMaps | undefined = $derived.by(() => {
    const { found } = this.run
    const method = this.of.methods.find(found?.wanted.request.method.name)
    if (!this.method || !method || !found?.result.maps || found.wanted.about !== this.of.about) return undefined
    const { target, maps } = found.result
    const [{ name, shape }, { request }] = [maps, found.wanted]
    const params = { target: target.texts, ...(request.position === null ? {} : { position: request.position }) }
    const info = { shape, by_layer: false, signed: true, stored: true, identical: null, params, undefined: null }
    return { name, declaration: { ...method, name }, info, request, texts: target.texts }
  })
  /** The open head does not show what is chosen. */
  readonly outdated: boolean = $derived.by(
    () => this.of.able && this.method !== undefined && this.run.current(this.wanted) === undefined,
  )
  /** How far it is; empty if nothing is computed. */
  readonly progress: string = $derived.by(() => {
    if (!this.outdated || !this.method || !this.run.isRunning(this.wanted)) return ''
    return `Computing ${inPhrase(this.method.title)} \u2026 ${Math.round(100 * this.run.done)}\u00a0%`
  })

  constructor(
    private readonly of: Subject,
    private readonly selection: Selection,
    compute: Compute,
  ) {
    // They are deleted with their analysis, and computed again for another one of the same input.
    this.run = new EffectRun(compute, 0)
  }

  /** Compute what is chosen, unless it was computed for this analysis. */
  refresh(): void {
    const [{ found }, { wanted }] = [this.run, this]
    if (!wanted) this.run.stop()
    else if (found?.wanted.key !== wanted.key || found.wanted.id !== wanted.id) void this.run.ask(wanted)
  }

  /** Choose the maps of a method as the lens; the model still predicts where it did. */
  choose(method: string): void {
    this.selection.set({ lens: colourOf(method), predict: 'show', at: String(this.of.position ?? '') })
    if (this.wanted) void this.run.ask(this.wanted, true)
  }
}
