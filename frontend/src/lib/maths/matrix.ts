/** By how much an entry that is computed in single precision may differ from the model's. */
const SINGLE_ERROR = 1e-5

/** How precise the entries of a map are; without fields for exact values. */
export interface Errors {
  /** The largest error of an entry. */
  error?: number
  /** The largest sum of what rounding changes in a row, beside SINGLE_ERROR of each entry, if it is known. */
  rowError?: number
}

/** The map of one head, [Q, K], row-major. `exact` is false for a thumbnail shown until the real map arrives. */
export interface Matrix extends Errors {
  data: Float32Array
  rows: number
  cols: number
  exact: boolean
  /** An overview of a long map: each entry is the largest of so many queries and keys. */
  pool?: number
}

/** The sums of the magnitudes of a map over keys, [Q], and over queries, [K]. A row without a reading has the sum NaN. */
export interface Sums {
  queries: Float32Array
  keys: Float32Array
}

/** Without its sign, the bits of a float sort like its magnitude; above those of infinity is NaN. */
export const MAGNITUDE = 0x7fffffff
export const INFINITE = 0x7f800000

/** Free the memory of a map, whose buffer is its own: megabytes outside its heap are noticed late by the garbage collector. Reading the map afterwards throws. */
export function releaseMatrix(map: Matrix): void {
  const { buffer } = map.data
  const get = () => {
    throw new Error('A map was read after its memory had been released.')
  }
  Object.defineProperty(map, 'data', { get })
  // Browsers of before 2024 lack this, and collect it some time later.
  if ('transfer' in buffer) (buffer.transfer as (size: number) => unknown)(0)
}

/** Thumbnails of every head under one lens: bytes [L, H, rows, cols], value = offset + scale * byte; scale is NaN where a layer lacks the head. */
export interface Tiles {
  bytes: Uint8Array
  scale: Float32Array
  offset: Float32Array
  layers: number
  heads: number
  rows: number
  cols: number
}

/** The server's thumbnails have at most this many cells along a side. */
const LARGEST_SIDE = 32
/** All thumbnails of a model take about this many bytes at most, as the first picture waits for them. */
const GRID_BYTES = 300_000

/** The cells along a side of each of so many thumbnails. */
export const thumbnailSide = (heads: number): number =>
  Math.max(8, Math.min(LARGEST_SIDE, Math.floor(Math.sqrt(GRID_BYTES / Math.max(1, heads)))))

export function dequantise(bytes: ArrayLike<number>, scale: number, offset: number): Float32Array {
  const values = new Float32Array(bytes.length)
  for (let i = 0; i < bytes.length; i++) values[i] = offset + scale * bytes[i]
  return values
}

/** The thumbnail of one head as a coarse map, shown until the exact map arrives. */
export function tileMatrix(tiles: Tiles, layer: number, head: number): Matrix {
  const index = layer * tiles.heads + head
  const area = tiles.rows * tiles.cols
  const bytes = tiles.bytes.subarray(index * area, (index + 1) * area)
  const data = dequantise(bytes, tiles.scale[index], tiles.offset[index])
  return { data, rows: tiles.rows, cols: tiles.cols, exact: false }
}

/** Scale a thumbnail by its own largest magnitude, so that one strong head does not drain the others of colour. */
export function ownScale(tile: Matrix): Matrix {
  const max = maxMagnitude(tile.data)
  return max === 0 ? tile : { ...tile, data: tile.data.map((value) => value / max) }
}

/** Scale every row by its own largest magnitude, so that broad queries are as visible as narrow ones. */
export function rowShares(map: Matrix): Matrix {
  const data = new Float32Array(map.data.length)
  for (let q = 0; q < map.rows; q++) {
    const row = map.data.subarray(q * map.cols, (q + 1) * map.cols)
    const max = maxMagnitude(row) || 1
    for (let k = 0; k < map.cols; k++) data[q * map.cols + k] = row[k] / max
  }
  return { ...map, data }
}

/** The mean of some rows, [K]. Rows without a reading are ignored. */
export function rowMean(map: Matrix, rows: readonly number[]): Float32Array {
  const mean = new Float32Array(map.cols)
  const read = rows.filter((row) => row < map.rows && !isGap(map, row))
  for (const row of read) for (let k = 0; k < map.cols; k++) mean[k] += map.data[row * map.cols + k] / read.length
  return read.length > 0 ? mean : mean.fill(Number.NaN)
}

/** The sum of some columns, [Q]: how much each query attends to these keys. */
export function columnSum(map: Matrix, columns: readonly number[]): Float32Array {
  const at = (q: number) => columns.reduce((sum, key) => sum + map.data[q * map.cols + key], 0)
  return Float32Array.from({ length: map.rows }, (_, q) => at(q))
}

/** The value of a thumbnail or an overview at a token of so many along each side. Cells of an overview have as many tokens each, but for the last one. */
export function thumbnailValue(map: Matrix, [query, queries]: [number, number], [key, keys]: [number, number]): number {
  const cell = (token: number, tokens: number, cells: number) =>
    Math.floor(map.pool ? token / map.pool : ((token + 0.5) / tokens) * cells)
  return map.data[cell(query, queries, map.rows) * map.cols + cell(key, keys, map.cols)]
}

/** The value of grouped tokens, such as the pieces of a word: the sum over keys, the mean over queries. */
export function groupValue(map: Matrix, queries: readonly number[], keys: readonly number[]): number {
  const mean = rowMean(map, queries)
  return keys.reduce((sum, key) => sum + mean[key], 0)
}

/** The largest magnitude over all thumbnails. Max pooling preserves it, so it is that of all maps, too. */
export function tilesMax(tiles: Tiles): number {
  let max = 0
  const area = tiles.rows * tiles.cols
  for (let i = 0; i < tiles.scale.length; i++) {
    if (Number.isNaN(tiles.scale[i])) continue
    for (let p = i * area; p < (i + 1) * area; p++) {
      max = Math.max(max, Math.abs(tiles.offset[i] + tiles.scale[i] * tiles.bytes[p]))
    }
  }
  return max
}

/** Cached by map: several parts of the page need it, and a map has millions of entries. */
function once<K extends object, V>(reckon: (of: K) => V): (of: K) => V {
  const known = new WeakMap<K, { value: V }>()
  return (of) => {
    const found = known.get(of) ?? { value: reckon(of) }
    known.set(of, found)
    return found.value
  }
}

export const maxMagnitude = once((data: Float32Array): number => {
  let max = 0
  for (let i = 0; i < data.length; i++) {
    const size = Math.abs(data[i])
    if (size > max) max = size
  }
  return max
})

/** a - b, entry by entry. */
export function difference(a: Matrix, b: Matrix): Matrix {
  if (a.rows !== b.rows || a.cols !== b.cols) throw new Error('difference: the two maps differ in shape')
  const data = new Float32Array(a.data.length)
  for (let i = 0; i < data.length; i++) data[i] = a.data[i] - b.data[i]
  return { data, rows: a.rows, cols: a.cols, exact: a.exact && b.exact, ...rounding((a.error ?? 0) + (b.error ?? 0)) }
}

/** The largest error of a sum over so many keys of a row. */
export const sumError = ({ error = 0, rowError = Number.POSITIVE_INFINITY }: Errors, keys: number): number =>
  Math.min(error * keys, rowError + SINGLE_ERROR * keys)

/** The largest error, if there is one. */
export const rounding = (error: number): Pick<Matrix, 'error'> => (error > 0 ? { error } : {})

/** Whether a row has no reading. */
export const isGap = (map: Matrix, row: number) => Number.isNaN(map.data[row * map.cols])

/** Mean over queries of the magnitude each key receives, [K]; queries without a reading are ignored. */
export const columnMeans = once(({ data, rows, cols }: Matrix): Float32Array => {
  const means = new Float32Array(cols)
  let read = 0
  for (let q = 0; q < rows; q++) {
    const from = q * cols
    if (Number.isNaN(data[from])) continue
    read += 1
    for (let k = 0; k < cols; k++) means[k] += Math.abs(data[from + k])
  }
  for (let k = 0; k < cols; k++) means[k] /= Math.max(1, read)
  return means
})

/** Indices of the largest magnitudes in descending order, without entries that have no reading. */
export function topIndices(values: Float32Array, count: number): number[] {
  const top: number[] = []
  for (let i = 0; i < values.length; i++) {
    if (Number.isNaN(values[i])) continue
    let at = top.length
    while (at > 0 && Math.abs(values[top[at - 1]]) < Math.abs(values[i])) at--
    if (at < count) top.splice(at, 0, i)
    if (top.length > count) top.pop()
  }
  return top
}

/** The largest entry by magnitude, in these rows or in all; undefined without a reading. */
export function strongest(map: Matrix, rows: readonly number[] = []): { query: number; key: number } | undefined {
  let best = -1
  for (let at = 0; at < map.data.length; at++) {
    if (rows.length > 0 && !rows.includes(Math.floor(at / map.cols))) continue
    if (Math.abs(map.data[at]) > (best < 0 ? 0 : Math.abs(map.data[best]))) best = at
  }
  return best < 0 ? undefined : { query: Math.floor(best / map.cols), key: best % map.cols }
}
