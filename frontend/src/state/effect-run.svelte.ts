/** Effects of one kind: the one that was computed last, and the one that is being computed. */
import type { Effect, EffectRequest } from '../lib/data/effects'
import { KeyedRun } from './keyed-run.svelte'

/** An effect of an analysis; `key` is all that it depends on. */
export interface WantedEffect {
  key: string
  id: string
  model: string
  request: EffectRequest
  /** The input: effects of the same request on it are the same. */
  about: string
}

export type Compute = (wanted: WantedEffect, report: (done: number) => void, signal: AbortSignal) => Promise<Effect>

export class EffectRun extends KeyedRun<WantedEffect, Effect> {}
