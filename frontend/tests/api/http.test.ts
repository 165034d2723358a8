import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { getBytes } from '../../src/api/http'

/** More than one piece of the reader. */
const BYTES = Uint8Array.from({ length: 2_300_000 }, (_, i) => (i * 31) % 251)

/** Whether a body has its length, is compressed, or ends early. */
const ANSWERS: Record<string, RequestListener> = {
  '/sized': (_, answer) => void answer.setHeader('content-length', BYTES.length).end(BYTES),
  '/chunked': (_, answer) => {
    answer.write(BYTES.subarray(0, 1000))
    answer.end(BYTES.subarray(1000))
  },
  '/compressed': (_, answer) => {
    const body = gzipSync(BYTES)
    answer.setHeader('content-encoding', 'gzip').setHeader('content-length', body.length).end(body)
  },
  '/empty': (_, answer) => void answer.setHeader('content-length', 0).end(),
  '/cut': (_, answer) => {
    answer.setHeader('content-length', BYTES.length)
    answer.write(BYTES.subarray(0, 1000), () => answer.destroy())
  },
}

describe('getBytes', () => {
  const real = fetch
  afterEach(() => void vi.unstubAllGlobals())

  it('reads every body whole, or fails', async () => {
    const server = createServer((request, answer) => ANSWERS[request.url!.replace('/api/v1', '')](request, answer))
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    vi.stubGlobal('fetch', (path: string, init: RequestInit) => real(`http://127.0.0.1:${port}${path}`, init))
    for (const path of ['/sized', '/chunked', '/compressed']) {
      expect(Buffer.compare(new Uint8Array(await getBytes(path)), BYTES), path).toBe(0)
    }
    expect((await getBytes('/empty')).byteLength).toBe(0)
    await expect(getBytes('/cut')).rejects.toThrow()
    server.close()
  })

  it('reads a body in a browser without byte readers', async () => {
    const body = new ReadableStream({
      start(stream) {
        stream.enqueue(BYTES)
        stream.close()
      },
    })
    vi.stubGlobal('fetch', async () => new Response(body, { headers: { 'content-length': String(BYTES.length) } }))
    expect(Buffer.compare(new Uint8Array(await getBytes('/plain')), BYTES)).toBe(0)
  })
})
