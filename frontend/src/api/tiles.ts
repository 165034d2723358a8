/** Thumbnails as the REST interface sends them. */
import type { Tiles } from '../lib/maths/matrix'
import { type Tensor, tensor } from '../lib/net/safetensors'

/** `name` of the tensor: those of an effect are its maps, pooled. */
export function readTiles(found: Map<string, Tensor>, name = 'tiles'): Tiles {
  const tiles = tensor(found, name)
  const [layers, heads, rows, cols] = tiles.shape
  const [scale, offset] = ['scale', 'offset'].map((name) => Float32Array.from(tensor(found, name).data))
  return { bytes: Uint8Array.from(tiles.data), scale, offset, layers, heads, rows, cols }
}
