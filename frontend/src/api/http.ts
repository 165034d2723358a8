/** fetch with our errors: a problem document becomes its own sentence, a dead line becomes a plain one. */
import { type Problem, problemSentence } from '../lib/problem'
import { SourceError } from '../lib/source'

export const PREFIX = '/api/v1'

export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await reach(path, init)
  if (!response.ok) throw await problem(response)
  return response
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  const headers = { accept: 'application/json' }
  return (await call(path, signal ? { headers, signal } : { headers })).json()
}

export async function getBytes(path: string): Promise<ArrayBuffer> {
  return (await call(path)).arrayBuffer()
}

async function reach(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(PREFIX + path, init)
  } catch (error) {
    if (init.signal?.aborted) throw error
    throw new SourceError('The server cannot be reached. Your text is kept; try again in a moment.', 'unreachable', 0)
  }
}

async function problem(response: Response): Promise<SourceError> {
  const { status, statusText } = response
  const fallback = `The server answered ${status} ${statusText}`.trimEnd()
  const known: Partial<Problem> = await response.json().catch(() => ({}))
  const { title = fallback, detail = '', code = 'error', limit = null, actual = null } = known
  return new SourceError(problemSentence({ title, detail, code, status, limit, actual }), code, status, limit, actual)
}

/** `/analyses/{id}/...` with every part escaped and only the query that is set. */
export function path(parts: string[], query: Record<string, string | number> = {}): string {
  const search = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)])).toString()
  return `/${parts.map(encodeURIComponent).join('/')}${search ? `?${search}` : ''}`
}
