/** The names along an axis at every zoom: from afar the beginnings of sentences, then words, then every token. */
import type { Token } from '../data/analysis'
import { LABEL_HEIGHT, labelStep } from '../text/labels'
import { sentencesOf } from '../text/segmentation'
import { type Axis, type Outline, tokenAxis, wordAxis } from './axis'
import type { Span } from './highlight'
import { visibleCells } from './raster'

const known = new WeakMap<readonly Token[], { pieces?: Axis; words?: Axis }>()

/** An axis of tokens or words with an outline; `texts` are those that the offsets of the tokens refer to. */
export function outlined(unit: 'pieces' | 'words', tokens: readonly Token[], texts: readonly string[]): Axis {
  const of = known.get(tokens) ?? {}
  known.set(tokens, of)
  of[unit] ??= makeOutlined(unit === 'words' ? wordAxis(tokens) : tokenAxis(tokens), outlineOf(tokens, texts))
  return of[unit]
}

function makeOutlined(axis: Axis, { names, rank }: Outline): Axis {
  const first = axis.start.subarray(0, axis.labels.length)
  const outline = {
    names: Array.from(first, (token) => names[token]),
    rank: Uint8Array.from(first, (token) => rank[token]),
  }
  return { ...axis, outline }
}

function outlineOf(tokens: readonly Token[], texts: readonly string[]): Outline {
  const words = wordAxis(tokens)
  const labels = words.labels.map(withoutSpace)
  const names = Array.from(tokens, (_, i) => labels[words.of[i]])
  const rank = new Uint8Array(tokens.length)
  for (const [word, start] of words.start.subarray(0, labels.length).entries())
    if (/[\p{L}\p{N}]/u.test(labels[word])) rank[start] = 1
  const { of, labels: sentences } = sentencesOf(tokens, texts)
  for (const [i, sentence] of of.entries()) {
    if (sentence < 0 || sentence === of[i - 1]) continue
    // A word may begin with the space before it, which belongs to the sentence before.
    const word = words.of[i]
    rank[words.start[word]] = 2
    names[words.start[word]] = sentences[sentence].replace(/^\d+ /, '')
  }
  return { names, rank }
}

/** A word without the space before it. */
const withoutSpace = (label: string) => label.replace(/^\u2423+(?=.)/, '')

export interface AxisName {
  place: number
  /** The centre, in pixels from the start of the map. */
  at: number
  name: string
}

type Named = Pick<Axis, 'labels' | 'outline'>

/** The names that a window shows without overlap: it begins at `start` and shows `size`, in fractions, on `side` pixels. Moving it changes none of them. */
export function axisNames({ labels, outline }: Named, start: number, size: number, side: number): AxisName[] {
  const pitch = side / labels.length / size
  const step = labelStep(pitch)
  const span = visibleCells(labels.length, start, size)
  const places =
    step > 1 && outline
      ? choosePlaces(span, step, Math.ceil(LABEL_HEIGHT / pitch), outline.rank)
      : everyPlace(span, step)
  return places.flatMap((place) => {
    const at = (place + 0.5 - start * labels.length) * pitch
    const name = step > 1 && outline ? outline.names[place] : labels[place]
    return at < 0 || at > side ? [] : [{ place, at, name }]
  })
}

function everyPlace([from, to]: Span, step: number): number[] {
  const first = Math.ceil(from / step) * step
  return Array.from({ length: Math.max(0, Math.ceil((to - first) / step)) }, (_, i) => first + i * step)
}

/** Steps whose places are chosen together, wherever the window is. */
const TOGETHER = 16

/** The best place of each step, without those closer than `far` to a better one. */
function choosePlaces([from, to]: Span, step: number, far: number, rank: Uint8Array): number[] {
  const [length, chosen]: [number, number[]] = [TOGETHER * step, []]
  for (let start = Math.floor(from / length) * length; start < to; start += length) {
    const end = Math.min(start + length, rank.length)
    const apart: number[] = []
    for (let at = start; at < end; at += step) addApart(apart, bestPlace(at, Math.min(at + step, end), rank), far, rank)
    if (apart.length > 0) addApart(chosen, apart[0], far, rank)
    chosen.push(...apart.slice(1))
  }
  return chosen
}

function bestPlace(from: number, to: number, rank: Uint8Array): number {
  let best = from
  for (let place = from + 1; place < to; place++) if (rank[place] > rank[best]) best = place
  return best
}

/** Add a place, unless it touches the last one, of which the one with the higher rank stays. */
function addApart(places: number[], place: number, far: number, rank: Uint8Array): void {
  const last = places.at(-1)
  if (last === undefined || place - last >= far) places.push(place)
  else if (rank[place] > rank[last]) places[places.length - 1] = place
}
