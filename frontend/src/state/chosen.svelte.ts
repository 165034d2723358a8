/** What the selection amounts to, with what the server has: the model, its mechanism, and the lenses that it supports. */
import type { Declaration, KindSupport, Method, Model, ModelKind, Reasons } from '../lib/data/analysis'
import { hasMaps, methodOf } from '../lib/data/effects'
import { resolveMechanism, trainedMechanism } from '../lib/data/mechanism'
import { readParams } from '../lib/data/params'
import { type Reads, readsOf } from './input'
import type { Selection } from './selection.svelte'
import type { Session } from './session.svelte'

/** Always computed; other lenses when they are chosen. */
export const BASE: readonly string[] = ['weights', 'effective']

/** Those that the model supports. */
const supported = (items: readonly Declaration[] | undefined, reasons: Reasons | undefined): Declaration[] =>
  (items ?? []).filter(({ name }) => !reasons?.[name])

export class Chosen {
  readonly defaultModel: string = $derived.by(() => {
    const models = this.session.catalogue?.models ?? []
    return (models.find(({ isDefault }) => isDefault) ?? models.find(({ available }) => available))?.name ?? ''
  })
  readonly model: string = $derived.by(() => this.selection.model || this.defaultModel)
  readonly card: Model | undefined = $derived.by(() =>
    this.session.catalogue?.models.find(({ name }) => name === this.model),
  )
  /** Before the models are known, as if it read texts. */
  readonly kind: ModelKind = $derived.by(() => this.card?.kind ?? 'encoder')
  readonly reads: Reads = $derived.by(() => readsOf(this.kind, this.card?.images ?? false))
  /** The mechanism that the model was trained with, and the one in use. */
  readonly own: Method = $derived.by(() => this.ownOf(this.model))
  readonly mechanism: Method = $derived.by(() =>
    resolveMechanism(this.own, this.selection.mechanism, readParams(this.selection.params)),
  )
  /** What the model supports, for each kind of its attention and for the open one. */
  readonly supports: readonly KindSupport[] = $derived.by(() => this.session.support[this.model] ?? [])
  readonly support: KindSupport | undefined = $derived.by(
    () => this.supports.find(({ kind }) => kind === this.selection.kind) ?? this.supports[0],
  )
  readonly lenses: readonly Declaration[] = $derived.by(() =>
    supported(this.session.catalogue?.lenses, this.support?.lenses),
  )
  readonly measures: readonly Declaration[] = $derived.by(() =>
    supported(this.session.catalogue?.measures, this.support?.measures),
  )
  readonly lens: string = $derived.by(() => this.#firstOf([this.selection.lens]) || (this.lenses[0]?.name ?? ''))
  /** What the open head is seen through: the lens, or the maps of an effect. */
  readonly seen: string = $derived.by(() => {
    const method = methodOf(this.selection.lens)
    const known = this.session.catalogue?.effects.some((item) => item.name === method && hasMaps(item))
    return known ? this.selection.lens : this.lens
  })
  readonly other: string = $derived.by(() =>
    this.#firstOf([this.selection.other, ...BASE, ...this.lenses.map(({ name }) => name)], this.seen),
  )

  constructor(
    private readonly selection: Selection,
    private readonly session: Session,
  ) {}

  /** The mechanism that a model was trained with. */
  ownOf(model: string): Method {
    return trainedMechanism(this.session.catalogue?.models ?? [], model)
  }

  /** The first of these lenses that is supported, except one. */
  #firstOf(names: readonly string[], but = ''): string {
    return names.find((name) => name !== but && this.lenses.some((item) => item.name === name)) ?? ''
  }
}
