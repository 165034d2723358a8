/** Jobs with one result over the REST interface: ask, then look until they have ended. */
import { SourceError } from '../lib/data/source'
import { type Problem, problemSentence } from '../lib/net/problem'
import { call, getJson } from './http'
import type { components } from './schema'

interface Single {
  id: string
  status: components['schemas']['EffectDocument']['status']
  progress: { fraction: number }
  error: components['schemas']['Problem'] | null
  result: object | null
}

/** In ms: the first look, and the longest time between two. */
const SOON = 60
const LATE = 600

/** By what they ask for: jobs that were given up and are not cancelled yet. The same asked again would join such a job, and be cancelled with it. */
const leaving = new Map<string, Promise<unknown>>()

/** `at` is the URL of these jobs and of what belongs to them. `report` is called with the fraction that is done; aborting cancels the job. */
export async function computeSingle<D extends Single>(
  at: (parts: string[]) => string,
  body: object,
  report: (done: number) => void,
  signal: AbortSignal,
  say: (problem: Problem) => string = problemSentence,
): Promise<D & { result: NonNullable<D['result']> }> {
  const asked = at([]) + JSON.stringify(body)
  await leaving.get(asked)
  signal.throwIfAborted()
  const ended = follow<D>(at, body, report, signal, say)
  const leave = () =>
    leaving.set(
      asked,
      ended.catch(() => {}).finally(() => leaving.delete(asked)),
    )
  signal.addEventListener('abort', leave)
  const document = await ended.finally(() => signal.removeEventListener('abort', leave))
  const { result, error } = document
  if (result) return { ...document, result }
  const { detail = '', code = 'cancelled', status = 409 } = error ?? {}
  throw new SourceError(detail || 'The computation was cancelled.', code, status)
}

/** Post a job, which is not aborted until its id is known, and look until it has ended. */
async function follow<D extends Single>(
  at: (parts: string[]) => string,
  body: object,
  report: (done: number) => void,
  signal: AbortSignal,
  say: (problem: Problem) => string,
): Promise<D> {
  const headers = { 'content-type': 'application/json', accept: 'application/json' }
  const response = await call(at([]), { method: 'POST', headers, body: JSON.stringify(body) }, say)
  let document = (await response.json()) as D
  const itself = at([document.id])
  try {
    for (let pause = SOON; isUnfinished(document); pause = Math.min(LATE, 1.5 * pause)) {
      report(document.progress.fraction)
      await rest(pause, signal)
      signal.throwIfAborted()
      document = await getJson<D>(itself, signal, say)
    }
  } catch (error) {
    if (signal.aborted) await call(itself, { method: 'DELETE' }).catch(() => {})
    throw error
  }
  return document
}

const isUnfinished = ({ status }: Single) => status === 'queued' || status === 'running'

/** Wait, or until the signal is aborted. */
const rest = (ms: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    if (signal.aborted) return resolve()
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    })
  })
