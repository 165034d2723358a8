import { describe, expect, it } from 'vitest'
import { readSafetensors, tensor } from '../../src/lib/net/safetensors'

function encode(tensors: Record<string, { dtype: string; shape: number[]; bytes: Uint8Array }>, pad = 0): ArrayBuffer {
  let offset = 0
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } }
  for (const [name, { dtype, shape, bytes }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + bytes.length] }
    offset += bytes.length
  }
  const text = new TextEncoder().encode(JSON.stringify(header) + ' '.repeat(pad))
  const file = new Uint8Array(8 + text.length + offset)
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true)
  file.set(text, 8)
  let at = 8 + text.length
  for (const { bytes } of Object.values(tensors)) {
    file.set(bytes, at)
    at += bytes.length
  }
  return file.buffer
}

const floats = new Uint8Array(Float32Array.from([0.25, -1, 3.5]).buffer)

describe('readSafetensors', () => {
  it.each([0, 1, 2, 3])('reads floats and bytes whatever the alignment (pad %i)', (pad) => {
    const file = encode(
      {
        map: { dtype: 'F32', shape: [1, 3], bytes: floats },
        tiles: { dtype: 'U8', shape: [2], bytes: Uint8Array.of(7, 255) },
      },
      pad,
    )
    const tensors = readSafetensors(file)
    expect(tensor(tensors, 'map')).toEqual({ shape: [1, 3], data: Float32Array.from([0.25, -1, 3.5]) })
    expect([...tensor(tensors, 'tiles').data]).toEqual([7, 255])
  })

  it('refuses what is cut short, of another type, or absent', () => {
    const file = encode({ map: { dtype: 'F32', shape: [1, 3], bytes: floats } })
    expect(() => readSafetensors(file.slice(0, file.byteLength - 1))).toThrow('out of bounds')
    expect(() => readSafetensors(file.slice(0, 4))).toThrow('shorter')
    expect(() => readSafetensors(encode({ map: { dtype: 'F64', shape: [3], bytes: floats } }))).toThrow('F64')
    expect(() => tensor(readSafetensors(file), 'scale')).toThrow('scale')
  })
})
