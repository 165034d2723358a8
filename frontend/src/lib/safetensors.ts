/** Reads safetensors: eight bytes of header length, a JSON header, then the bytes of every tensor. */
export type TensorData = Float32Array | Uint8Array
export interface Tensor {
  shape: number[]
  data: TensorData
}
interface Entry {
  dtype: string
  shape: number[]
  data_offsets: [number, number]
}

const HEADER_LIMIT = 1 << 20

export function readSafetensors(buffer: ArrayBuffer): Map<string, Tensor> {
  if (buffer.byteLength < 8) throw new Error('safetensors: shorter than its header length')
  const length = Number(new DataView(buffer).getBigUint64(0, true))
  if (length > HEADER_LIMIT || 8 + length > buffer.byteLength) throw new Error('safetensors: header out of bounds')
  const header: Record<string, Entry> = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)))
  const tensors = new Map<string, Tensor>()
  for (const [name, entry] of Object.entries(header)) {
    if (name !== '__metadata__') tensors.set(name, { shape: entry.shape, data: view(buffer, 8 + length, entry) })
  }
  return tensors
}

function view(buffer: ArrayBuffer, base: number, { dtype, shape, data_offsets: [from, to] }: Entry): TensorData {
  const count = shape.reduce((product, size) => product * size, 1)
  const width = dtype === 'F32' ? 4 : dtype === 'U8' ? 1 : 0
  if (width === 0) throw new Error(`safetensors: dtype ${dtype} is not read here`)
  if (to - from !== count * width || base + to > buffer.byteLength) throw new Error('safetensors: tensor out of bounds')
  if (width === 1) return new Uint8Array(buffer, base + from, count)
  // A view needs an aligned start; a header of odd length costs one copy.
  const start = base + from
  return start % 4 === 0 ? new Float32Array(buffer, start, count) : new Float32Array(buffer.slice(start, base + to))
}

export function tensor(tensors: Map<string, Tensor>, name: string): Tensor {
  const found = tensors.get(name)
  if (!found) throw new Error(`safetensors: no tensor named ${name}`)
  return found
}
