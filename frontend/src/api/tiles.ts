/** Thumbnails as the REST interface sends them. */
import type { Tiles } from '../lib/maths/matrix'
import { type Tensor, tensor } from '../lib/net/safetensors'

export function readTiles(found: Map<string, Tensor>): Tiles {
  const tiles = tensor(found, 'tiles')
  const [layers, heads, rows, cols] = tiles.shape
  const [scale, offset] = ['scale', 'offset'].map((name) => Float32Array.from(tensor(found, name).data))
  return { bytes: Uint8Array.from(tiles.data), scale, offset, layers, heads, rows, cols }
}
