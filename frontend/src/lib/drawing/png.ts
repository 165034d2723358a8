/** Set the resolution of a PNG by a pHYs chunk after its header. */
const HEADER_END = 8 + 25
const INCH = 0.0254

export function withResolution(png: Uint8Array, dpi: number): Uint8Array<ArrayBuffer> {
  const chunk = new Uint8Array(21)
  const view = new DataView(chunk.buffer)
  const perMetre = Math.round(dpi / INCH)
  view.setUint32(0, 9)
  chunk.set(new TextEncoder().encode('pHYs'), 4)
  view.setUint32(8, perMetre)
  view.setUint32(12, perMetre)
  chunk[16] = 1
  view.setUint32(17, crc32(chunk.subarray(4, 17)))
  const sized = new Uint8Array(png.length + chunk.length)
  sized.set(png.subarray(0, HEADER_END))
  sized.set(chunk, HEADER_END)
  sized.set(png.subarray(HEADER_END), HEADER_END + chunk.length)
  return sized
}

/** The CRC-32 of PNG chunks. */
export function crc32(bytes: Uint8Array): number {
  let crc = ~0
  for (const byte of bytes) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0)
  }
  return ~crc >>> 0
}
