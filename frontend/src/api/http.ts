/** fetch with our errors: problem documents and network failures become messages. */

import { SourceError } from '../lib/data/source'
import { type Problem, problemSentence } from '../lib/net/problem'

export const PREFIX = '/api/v1'

/** Message for a problem. */
type MessageOf = (problem: Problem) => string

export async function call(path: string, init: RequestInit = {}, say: MessageOf = problemSentence): Promise<Response> {
  return judged(await reach(path, init, say), say)
}

interface Upload {
  file: Blob
  signal: AbortSignal
  /** Called with the number of bytes sent. */
  report: (sent: number) => void
}

/** Post a file with progress, which `fetch` does not report. */
export async function send(path: string, sending: Upload, say: MessageOf = problemSentence): Promise<Response> {
  return judged(await sent(path, sending, say), say)
}

function sent(path: string, { file, signal, report }: Upload, say: MessageOf): Promise<Response> {
  const request = new XMLHttpRequest()
  return new Promise((resolve, reject) => {
    request.open('POST', PREFIX + path)
    request.setRequestHeader('content-type', 'application/octet-stream')
    request.setRequestHeader('accept', 'application/json')
    request.responseType = 'blob'
    request.upload.onprogress = ({ loaded }) => report(loaded)
    request.onload = () => resolve(new Response(request.response, request))
    request.onerror = () => reject(unreachable(say))
    request.onabort = () => reject(signal.reason)
    signal.addEventListener('abort', () => request.abort(), { once: true })
    request.send(file)
  })
}

export async function getJson<T>(path: string, signal?: AbortSignal, say?: MessageOf): Promise<T> {
  const headers = { accept: 'application/json' }
  return (await call(path, signal ? { headers, signal } : { headers }, say)).json()
}

export async function getBytes(path: string, signal?: AbortSignal): Promise<ArrayBuffer> {
  return readBody(await call(path, signal ? { signal } : {}))
}

/** Of the buffer that goes to the stream and back. */
const PIECE = 2 ** 20

/**
 * Reads into one buffer of the final size: `arrayBuffer()` collects pieces and copies them, which takes twice as long for a map of 16 MB. The stream gets
 * another buffer, as it would keep what it has once had until garbage is collected.
 */
async function readBody(response: Response): Promise<ArrayBuffer> {
  const reader = byteReader(response)
  if (!reader) return response.arrayBuffer()
  const body = new Uint8Array(Number(response.headers.get('content-length')))
  let piece = new ArrayBuffer(Math.min(PIECE, body.length))
  for (let at = 0; at < body.length; ) {
    const { done, value } = await reader.read(new Uint8Array(piece, 0, Math.min(piece.byteLength, body.length - at)))
    if (done) throw new Error('The response is shorter than its Content-Length.')
    body.set(value, at)
    piece = value.buffer
    at += value.byteLength
  }
  return body.buffer
}

/** Undefined if the size of the body is unknown, or the browser has no such reader. */
function byteReader({ body, headers }: Response): ReadableStreamBYOBReader | undefined {
  if (!headers.has('content-length') || headers.has('content-encoding')) return undefined
  try {
    return body?.getReader({ mode: 'byob' })
  } catch {
    return undefined
  }
}

const UNREACHABLE: Problem = {
  title: '',
  detail: 'The server cannot be reached. Try again in a moment.',
  code: 'unreachable',
  status: 0,
}

async function reach(path: string, init: RequestInit, say: MessageOf): Promise<Response> {
  try {
    return await fetch(PREFIX + path, init)
  } catch (error) {
    if (init.signal?.aborted) throw error
    throw unreachable(say)
  }
}

const unreachable = (say: MessageOf) => new SourceError(say(UNREACHABLE), UNREACHABLE.code, UNREACHABLE.status)

async function judged(response: Response, say: MessageOf): Promise<Response> {
  if (!response.ok) throw await problem(response, say)
  return response
}

async function problem(response: Response, say: MessageOf): Promise<SourceError> {
  const { status, statusText } = response
  const fallback = `The server answered ${status} ${statusText}`.trimEnd()
  const known: Partial<Problem> = await response.json().catch(() => ({}))
  const { title = fallback, detail = '', code = 'error', limit = null, actual = null } = known
  return new SourceError(say({ title, detail, code, status, limit, actual }), code, status, limit, actual)
}

/** `/analyses/{id}/...` with every part escaped, and a query of the parameters that are set. */
export function path(parts: string[], query: Record<string, string | number> = {}): string {
  const search = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)])).toString()
  return `/${parts.map(encodeURIComponent).join('/')}${search ? `?${search}` : ''}`
}
