/** Colour tables of 256 entries, mixed in OKLab so that equal steps look equal. */
type Rgb = [number, number, number]
/** Packed for a Uint32Array over ImageData (little endian: A B G R). */
export type ColourTable = Uint32Array

type Lab = [number, number, number]

const toLinear = (c: number) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
const toGamma = (c: number) => (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055)

export function parseHex(hex: string): Rgb {
  // The minifier of style sheets shortens six digits to three.
  const short = hex.trim().replace('#', '')
  const digits = short.length === 3 ? short.replace(/./g, '$&$&') : short
  return [0, 2, 4].map((at) => Number.parseInt(digits.slice(at, at + 2), 16)) as Rgb
}

function rgbToLab(rgb: Rgb): Lab {
  const [r, g, b] = rgb.map((c) => toLinear(c / 255))
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ]
}

function labToRgb([L, a, b]: Lab): Rgb {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ]
  return linear.map((c) => Math.round(255 * Math.min(1, Math.max(0, toGamma(Math.min(1, Math.max(0, c))))))) as Rgb
}

/** Interpolate between two colours: lightness is linear, hue and chroma bend towards `via`. */
function blend(from: Lab, via: Lab, to: Lab, t: number): Lab {
  const bend = Math.sin(Math.PI * t)
  const chroma = (i: 1 | 2) => from[i] + (to[i] - from[i]) * t + (via[i] - (from[i] + to[i]) / 2) * bend
  return [from[0] + (to[0] - from[0]) * t, chroma(1), chroma(2)]
}

/** A hex colour as an entry of a table. */
export const packHex = (hex: string) => pack(parseHex(hex))

const pack = ([r, g, b]: Rgb) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0

export interface Ramp {
  zero: string
  more: [via: string, end: string]
  less: [via: string, end: string]
}

export function sequentialTable(ramp: Ramp): ColourTable {
  const [zero, via, end] = [ramp.zero, ...ramp.more].map((hex) => rgbToLab(parseHex(hex)))
  return Uint32Array.from({ length: 256 }, (_, i) => pack(labToRgb(blend(zero, via, end, i / 255))))
}

/** Entry 128 is the background; the upper half is the sequential table, so that larger values look the same everywhere. */
export function divergingTable(ramp: Ramp): ColourTable {
  const zero = rgbToLab(parseHex(ramp.zero))
  const [moreVia, moreEnd, lessVia, lessEnd] = [...ramp.more, ...ramp.less].map((hex) => rgbToLab(parseHex(hex)))
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const t = Math.min(1, Math.abs(i - 128) / 127)
    return pack(labToRgb(i < 128 ? blend(zero, lessVia, lessEnd, t) : blend(zero, moreVia, moreEnd, t)))
  })
}

export function css(packed: number, alpha = 1): string {
  return `rgb(${packed & 255} ${(packed >> 8) & 255} ${(packed >> 16) & 255} / ${alpha})`
}

export function luminance(packed: number): number {
  const [r, g, b] = [packed & 255, (packed >> 8) & 255, (packed >> 16) & 255].map((c) => toLinear(c / 255))
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

export function contrast(a: number, b: number): number {
  const [high, low] = a > b ? [a, b] : [b, a]
  return (high + 0.05) / (low + 0.05)
}

/** Black or white, whichever has more contrast with a colour. */
export function inkOn(packed: number): string {
  const light = luminance(packed)
  return contrast(light, 0) > contrast(light, 1) ? '#000000' : '#ffffff'
}
