/** The score of the pinned cell in the open head. */
import { type Analysis, type Declaration, type Head, headName } from '../lib/data/analysis'
import type { EffectRequest } from '../lib/data/effects'
import { NOT_SOFTMAX_SCORE } from '../lib/text/effects'
import { type Compute, EffectRun, type WantedEffect } from './effect-run.svelte'
import type { Pointer } from './pointer.svelte'
import type { Selection } from './selection.svelte'
import type { Session } from './session.svelte'

/** The analysis on screen. */
interface Subject {
  readonly able: boolean
  readonly about: string
  /** Why the model lacks a method; empty if it does not. */
  lack(method: string): string
}

/** Of pairs of parts, those that bring most are listed. */
const PAIRS = 8
const sideOf = (why: 'query' | 'key' | 'pairs') => (why === 'pairs' ? { side: 'query', pairs: PAIRS } : { side: why })

export class HeadScore {
  readonly run: EffectRun
  readonly method: Declaration | undefined = $derived.by(() =>
    this.of.able ? this.session.catalogue?.effects.find(({ of }) => of === 'score') : undefined,
  )
  /** The pinned cell; undefined unless one query and one key are pinned. */
  readonly cell: { query: number; key: number } | undefined = $derived.by(() => {
    const { queries, keys } = this.pointer.pins
    return queries.length === 1 && keys.length === 1 ? { query: queries[0], key: keys[0] } : undefined
  })

  constructor(
    private readonly of: Subject,
    private readonly selection: Selection,
    private readonly session: Session,
    private readonly pointer: Pointer,
    compute: Compute,
  ) {
    this.run = new EffectRun(compute)
  }

  /** Why scores of this analysis have no parts; empty if they do. */
  refusal({ mechanism }: Analysis): string {
    return mechanism === 'softmax' ? this.of.lack(this.method?.name ?? '') : NOT_SOFTMAX_SCORE
  }

  /** The request for the score of a head; undefined unless its reason is asked for, of a pinned cell. */
  wanted({ id, model, mechanism }: Analysis, head: Head): WantedEffect | undefined {
    const { cell, method, selection } = this
    if (!cell || !method || !selection.why || mechanism !== 'softmax' || this.of.lack(method.name)) return undefined
    const request: EffectRequest = {
      target: [],
      position: null,
      method: { name: method.name, head: headName(head), ...cell, ...sideOf(selection.why) },
    }
    return { id, model, request, about: this.of.about, key: JSON.stringify([this.of.about, request]) }
  }
}
