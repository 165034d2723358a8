/** Effects over the REST interface. */
import { headName } from '../lib/data/analysis'
import {
  type Effect,
  type EffectMaps,
  type EffectRequest,
  type Effects,
  mapsName,
  type Prediction,
} from '../lib/data/effects'
import { scatter, subsetOf } from '../lib/data/subset'
import { computeSingle } from './single'
import type { WireEffect } from './wire'

type WireResult = NonNullable<WireEffect['result']>
type WirePrediction = WireResult['predictions'][number]

/** Predictions that are asked for. */
const MOST = 10

/** `of` is the URL of an analysis and what belongs to it. */
export function effects(of: (id: string, parts: string[]) => string): Effects {
  return {
    async compute(analysis, request, report, signal): Promise<Effect> {
      const at = (parts: string[]) => of(analysis, ['effects', ...parts])
      return readEffect(await computeSingle<WireEffect>(at, bodyOf(request), report, signal))
    },
  }
}

function bodyOf({ target, position, method, heads, against, reference }: EffectRequest): object {
  return {
    ...(target.length > 0 ? { target } : {}),
    ...(position === null ? {} : { position }),
    method,
    ...(heads ? { heads: heads.map(headName) } : {}),
    ...(against === undefined ? {} : { against }),
    ...(reference ? { reference } : {}),
    predictions: MOST,
  }
}

const readPredictions = (wire: readonly WirePrediction[]): Prediction[] =>
  wire.map(({ id, text, probability }) => ({ id, text, probability: probability ?? Number.NaN }))

function readEffect(document: WireEffect & { result: WireResult }): Effect {
  const { result } = document
  const { layers, heads, together } = result
  const grid = { layers, heads }
  return {
    target: result.target,
    predictions: readPredictions(result.predictions),
    values: scatter(result.effects, grid, null),
    together: together && {
      effect: together.effect,
      before: readPredictions(together.before),
      after: readPredictions(together.after),
    },
    baseline: result.baseline,
    maps: readMaps(document),
    score: result.score,
    parts: readParts(result),
    writes: result.writes && scatter(result.writes, grid, []),
  }
}

/** Heads of the kind of the effects are these themselves. */
function readParts({ parts, kind }: WireResult): Effect['parts'] {
  const others = Object.entries(parts).filter(([name]) => name !== kind)
  return Object.fromEntries(others.map(([name, numbers]) => [name, numbers.flat() as number[]]))
}

function readMaps({ id, analysis, result }: WireEffect): EffectMaps | null {
  if (!result?.shape) return null
  return { name: mapsName(analysis, id), shape: result.shape, subset: subsetOf(result.layers, result.heads) }
}
