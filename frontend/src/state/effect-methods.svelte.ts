/** Methods for effects with the parameters and texts that are chosen for them. */
import type { Declaration } from '../lib/data/analysis'
import {
  counterpartOf,
  type EffectRequest,
  judgesOf,
  methodOf,
  methodRequest,
  methodValues,
  missing,
  needs,
  type OtherTexts,
  offered,
  readLines,
} from '../lib/data/effects'
import type { Params } from '../lib/data/params'
import type { Selection } from './selection.svelte'
import type { Session } from './session.svelte'

type MethodRequest = Pick<EffectRequest, 'method' | 'against' | 'reference'>

export class EffectMethods {
  /** Those of the source that judge heads by a prediction. */
  readonly all: readonly Declaration[] = $derived.by(() =>
    (this.session.catalogue?.effects ?? []).filter((method) => method.of === 'prediction'),
  )
  /** Those that colour the grid. */
  readonly coloured: readonly Declaration[] = $derived.by(() => judgesOf(this.all))
  /** Those on screen: of the grid, of the lens, and by which heads are switched off. */
  readonly inUse: readonly Declaration[] = $derived.by(() => {
    const { colour, lens, off } = this.selection
    const names = [methodOf(colour), methodOf(lens), off.length > 0 ? 'ablation' : undefined]
    return this.all.filter(({ name }) => names.includes(name))
  })
  /** The other text of a comparison; empty without one. */
  readonly against: string = $derived.by(() => {
    const { with: what, compare, than } = this.selection
    return what === 'text' && compare !== 'off' ? than : ''
  })
  readonly #texts: OtherTexts = $derived.by(() => ({
    against: this.against,
    reference: readLines(this.selection.reference),
  }))

  constructor(
    private readonly selection: Selection,
    private readonly session: Session,
  ) {}

  find = (name: string | undefined): Declaration | undefined => this.all.find((one) => one.name === name)

  /** A method with the parameters that have a control. */
  offered = (method: Declaration): Declaration => offered(method, this)

  valuesOf = (method: Declaration): Params => methodValues(method, this.selection.effectParamsOf(method.name), this)

  /** How a method is requested; undefined while something is missing. */
  request(name: string | undefined): MethodRequest | undefined {
    const method = this.find(name)
    return method && methodRequest(method, this.valuesOf(method), this.#texts)
  }

  /** What a method estimates, or its estimate. */
  counterpart(name: string | undefined): { declaration: Declaration; request: MethodRequest } | undefined {
    const method = this.find(name)
    const other = method && counterpartOf(method, this.valuesOf(method))
    const declaration = this.find(other?.name)
    const request = other && declaration && methodRequest(declaration, other.values, this.#texts)
    return request && { declaration, request }
  }

  /** One of those on screen needs such texts. */
  needs = (texts: keyof OtherTexts): boolean => this.inUse.some((one) => needs(one, this.valuesOf(one), texts))

  /** What has to be chosen before effects of this method are computed; empty if nothing has. */
  missing(name: string): string {
    const method = this.find(name)
    return method ? missing(method, this.valuesOf(method), this.#texts) : ''
  }
}
