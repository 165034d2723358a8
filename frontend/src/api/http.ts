/** fetch with our errors: a problem document becomes its own sentence, a dead line becomes a plain one. */
import { type Problem, problemSentence } from '../lib/problem'
import { SourceError } from '../lib/source'

export const PREFIX = '/api/v1'

/** What went wrong, as a sentence. */
export type Say = (problem: Problem) => string

export async function call(path: string, init: RequestInit = {}, say: Say = problemSentence): Promise<Response> {
  const response = await reach(path, init, say)
  if (!response.ok) throw await problem(response, say)
  return response
}

export async function getJson<T>(path: string, signal?: AbortSignal, say?: Say): Promise<T> {
  const headers = { accept: 'application/json' }
  return (await call(path, signal ? { headers, signal } : { headers }, say)).json()
}

export async function getBytes(path: string): Promise<ArrayBuffer> {
  return (await call(path)).arrayBuffer()
}

const UNREACHABLE: Problem = {
  title: '',
  detail: 'The server cannot be reached. Try again in a moment.',
  code: 'unreachable',
  status: 0,
}

async function reach(path: string, init: RequestInit, say: Say): Promise<Response> {
  try {
    return await fetch(PREFIX + path, init)
  } catch (error) {
    if (init.signal?.aborted) throw error
    throw new SourceError(say(UNREACHABLE), UNREACHABLE.code, UNREACHABLE.status)
  }
}

async function problem(response: Response, say: Say): Promise<SourceError> {
  const { status, statusText } = response
  const fallback = `The server answered ${status} ${statusText}`.trimEnd()
  const known: Partial<Problem> = await response.json().catch(() => ({}))
  const { title = fallback, detail = '', code = 'error', limit = null, actual = null } = known
  return new SourceError(say({ title, detail, code, status, limit, actual }), code, status, limit, actual)
}

/** `/analyses/{id}/...` with every part escaped and only the query that is set. */
export function path(parts: string[], query: Record<string, string | number> = {}): string {
  const search = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)])).toString()
  return `/${parts.map(encodeURIComponent).join('/')}${search ? `?${search}` : ''}`
}
