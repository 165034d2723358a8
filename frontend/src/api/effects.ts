/** Effects over the REST interface: ask, then look until it has ended. */
import { headName } from '../lib/data/analysis'
import {
  type Effect,
  type EffectMaps,
  type EffectRequest,
  type Effects,
  mapsName,
  type Prediction,
} from '../lib/data/effects'
import { SourceError } from '../lib/data/source'
import { scatter, subsetOf } from '../lib/data/subset'
import { call, getJson } from './http'
import type { WireEffect } from './wire'

type WirePrediction = NonNullable<WireEffect['result']>['predictions'][number]

/** In ms: the first look, and the longest time between two. */
const SOON = 60
const LATE = 600
/** Predictions that are asked for. */
const MOST = 10

/** `of` is the URL of an analysis and what belongs to it. */
export function effects(of: (id: string, parts: string[]) => string): Effects {
  return {
    async compute(analysis, request, report, signal): Promise<Effect> {
      const response = await call(of(analysis, ['effects']), {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json' },
        body: JSON.stringify(bodyOf(request)),
      })
      let document = (await response.json()) as WireEffect
      const itself = of(analysis, ['effects', document.id])
      for (let pause = SOON; isUnfinished(document); pause = Math.min(LATE, 1.5 * pause)) {
        report(document.progress.fraction)
        await rest(pause, signal)
        if (signal.aborted) {
          await call(itself, { method: 'DELETE' }).catch(() => {})
          throw signal.reason
        }
        document = await getJson<WireEffect>(itself)
      }
      return readEffect(document)
    },
  }
}

const isUnfinished = ({ status }: WireEffect) => status === 'queued' || status === 'running'

const rest = (ms: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    })
  })

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

function readEffect(document: WireEffect): Effect {
  const { result, error } = document
  if (!result) {
    const { detail = '', code = 'cancelled', status = 409 } = error ?? {}
    throw new SourceError(detail || 'The computation was cancelled.', code, status)
  }
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
function readParts({ parts, kind }: NonNullable<WireEffect['result']>): Effect['parts'] {
  const others = Object.entries(parts).filter(([name]) => name !== kind)
  return Object.fromEntries(others.map(([name, numbers]) => [name, numbers.flat() as number[]]))
}

function readMaps({ id, analysis, result }: WireEffect): EffectMaps | null {
  if (!result?.shape) return null
  return { name: mapsName(analysis, id), shape: result.shape, subset: subsetOf(result.layers, result.heads) }
}
