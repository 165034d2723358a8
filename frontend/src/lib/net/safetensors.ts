/** Read safetensors: eight bytes of header length, a JSON header, then the bytes of every tensor. */
type TensorData = Float32Array | Uint8Array | Int16Array | Int32Array
export interface Tensor {
  shape: number[]
  data: TensorData
  /** Whether it is stored in half precision. */
  half?: boolean
}
interface Entry {
  dtype: string
  shape: number[]
  data_offsets: [number, number]
}

const HEADER_LIMIT = 1 << 20
/** Bytes of one entry. */
const WIDTHS: Record<string, number> = { F32: 4, F16: 2, I32: 4, I16: 2, U8: 1, BOOL: 1 }

const TYPES = { F32: Float32Array, I32: Int32Array, I16: Int16Array, U8: Uint8Array, BOOL: Uint8Array }

/** The header of a file, and where its tensors begin. */
function readHeader(buffer: ArrayBuffer): { header: Record<string, unknown>; base: number } {
  if (buffer.byteLength < 8) throw new Error('safetensors: shorter than its header length')
  const length = Number(new DataView(buffer).getBigUint64(0, true))
  if (length > HEADER_LIMIT || 8 + length > buffer.byteLength) throw new Error('safetensors: header out of bounds')
  return { header: JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))), base: 8 + length }
}

/** The metadata of a file: texts by name. */
export const readMetadata = (buffer: ArrayBuffer): Record<string, string> =>
  (readHeader(buffer).header.__metadata__ ?? {}) as Record<string, string>

export function readSafetensors(buffer: ArrayBuffer): Map<string, Tensor> {
  const { header, base } = readHeader(buffer)
  const tensors = new Map<string, Tensor>()
  for (const [name, entry] of Object.entries(header as Record<string, Entry>)) {
    if (name === '__metadata__') continue
    const read = { shape: entry.shape, data: view(buffer, base, entry) }
    tensors.set(name, entry.dtype === 'F16' ? { ...read, half: true } : read)
  }
  return tensors
}

function view(buffer: ArrayBuffer, base: number, { dtype, shape, data_offsets: [from, to] }: Entry): TensorData {
  const count = shape.reduce((product, size) => product * size, 1)
  const width = WIDTHS[dtype]
  if (!width) throw new Error(`safetensors: dtype ${dtype} is not read here`)
  if (to - from !== count * width || base + to > buffer.byteLength) throw new Error('safetensors: tensor out of bounds')
  if (dtype === 'F16') return halves(new DataView(buffer, base + from, 2 * count), count)
  const [start, Typed] = [base + from, TYPES[dtype as keyof typeof TYPES]]
  // A view needs an aligned start, so a header of odd length costs one copy.
  return start % width === 0 ? new Typed(buffer, start, count) : new Typed(buffer.slice(start, base + to))
}

function halves(bytes: DataView, count: number): Float32Array {
  const values = new Float32Array(count)
  for (let i = 0; i < count; i++) values[i] = half(bytes.getUint16(2 * i, true))
  return values
}

/** Decode half precision: one bit of sign, five of exponent, ten of fraction. */
export function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 31
  const fraction = bits & 1023
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25))
}

export function tensor(tensors: Map<string, Tensor>, name: string): Tensor {
  const found = tensors.get(name)
  if (!found) throw new Error(`safetensors: no tensor named ${name}`)
  return found
}
