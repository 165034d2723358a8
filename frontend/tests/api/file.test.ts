import { describe, expect, it } from 'vitest'
import { fileSource, readMap } from '../../src/api/file'
import { unpack } from '../../src/api/responses'
import { SourceError } from '../../src/lib/data/source'
import { half, readSafetensors } from '../../src/lib/net/safetensors'

interface Given {
  dtype: 'F32' | 'F16' | 'U8'
  shape: number[]
  data: Float32Array | Uint16Array | Uint8Array
}

/** safetensors, written out by hand. */
function written(tensors: Record<string, Given>): ArrayBuffer {
  let at = 0
  const header: Record<string, object> = {}
  for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [at, at + data.byteLength] }
    at += data.byteLength
  }
  const text = new TextEncoder().encode(JSON.stringify(header))
  const bytes = new Uint8Array(8 + text.length + at)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true)
  bytes.set(text, 8)
  let to = 8 + text.length
  for (const { data } of Object.values(tensors)) {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), to)
    to += data.byteLength
  }
  return bytes.buffer
}

const { signal } = new AbortController()
const f32 = (shape: number[], ...values: number[]): Given => ({ dtype: 'F32', shape, data: Float32Array.from(values) })

describe('half precision', () => {
  it.each([
    [0x0000, 0],
    [0x8000, -0],
    [0x3c00, 1],
    [0xc000, -2],
    [0x3555, 0.333251953125],
    [0x7bff, 65504],
    [0x0001, 2 ** -24],
    [0x03ff, 1023 * 2 ** -24],
    [0x0400, 2 ** -14],
    [0x7c00, Number.POSITIVE_INFINITY],
    [0xfc00, Number.NEGATIVE_INFINITY],
    [0x7e00, Number.NaN],
  ])('%i is %d', (bits, value) => {
    expect(half(bits)).toBe(value)
  })
})

describe('a map of an exported page', () => {
  it('is exact in float32', () => {
    const map = readMap(readSafetensors(written({ map: f32([1, 2, 1, 2], 1, 2, 3, 4) })), 1)
    expect(map).toEqual({ data: Float32Array.of(3, 4), rows: 1, cols: 2, exact: true })
  })

  it('says how far half precision may be off', () => {
    const data = Uint16Array.of(0x3c00, 0xc000)
    const map = readMap(readSafetensors(written({ map: { dtype: 'F16', shape: [1, 1, 1, 2], data } })), 0)
    expect([...map.data]).toEqual([1, -2])
    expect(map.error).toBe(2 / 2 ** 11)
  })

  it('is put together from bytes, with gaps where there is no reading', () => {
    const tensors = written({
      map: { dtype: 'U8', shape: [1, 1, 2, 2], data: Uint8Array.of(128, 255, 128, 128) },
      scale: f32([1, 1], 0.5),
      offset: f32([1, 1], -64),
      max_error: f32([1, 1], 0.25),
      undefined: { dtype: 'U8', shape: [1, 1, 2], data: Uint8Array.of(0, 1) },
    })
    const map = readMap(readSafetensors(tensors), 0)
    expect([...map.data]).toEqual([0, 63.5, Number.NaN, Number.NaN])
    expect(map.error).toBe(0.25)
  })
})

describe('the source behind an exported page', () => {
  const values = f32([2, 2, 2], 1, 3, Number.NaN, 5, 6, 6, Number.NaN, Number.NaN)
  const numbers = { layer_numbers: [0, 4], head_numbers: [0, 1], maps: {} }
  const source = fileSource(async (path) => {
    if (path === '/analysis') return new TextEncoder().encode(JSON.stringify(numbers)).buffer
    return path === '/measures/entropy/weights' ? written({ values }) : undefined
  })

  it('gives values of a head, and means of heads, null where undefined', async () => {
    expect(await source.measure('', 'entropy', 'weights', { layer: 0, head: 1 }, signal)).toEqual([null, 5])
    expect(await source.measure('', 'entropy', 'weights', { layer: 4, head: 0 }, signal)).toEqual([6, 6])
    expect(await source.overview('', 'entropy', 'weights', signal)).toEqual([
      [2, 5],
      [6, null],
    ])
  })

  it('says in plain words what it cannot do', async () => {
    await expect(source.map('', 'weights', { layer: 0, head: 0 }, signal)).rejects.toThrow(SourceError)
    await expect(source.submit({} as never, signal)).rejects.toThrow('Open Headscope')
  })
})

it('unpacks gzip in base64', async () => {
  const packed = new Response(new Blob(['</script> \u2713']).stream().pipeThrough(new CompressionStream('gzip')))
  const base64 = btoa(String.fromCharCode(...new Uint8Array(await packed.arrayBuffer())))
  expect(new TextDecoder().decode(await unpack(base64))).toBe('</script> \u2713')
})
