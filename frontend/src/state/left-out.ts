/** Which tokens are special or sinks, and how they are shown: as others, in grey, or not at all. */
import type { Analysis, AttentionWindow, Head } from '../lib/data/analysis'
import { type Axes, groupMap } from '../lib/maths/axis'
import { isLong } from '../lib/maths/details'
import type { Matrix } from '../lib/maths/matrix'
import { areLeft, blankColumns, findSinks, keptPlaces, pickAxis, pickMap, placesOf } from '../lib/maths/sinks'
import type { OpenAnalysis } from './open-analysis'

/** Which tokens, along queries and keys. */
export interface SinkTokens {
  queries: readonly boolean[]
  keys: readonly boolean[]
}

const NONE: readonly boolean[] = []
export const NO_SINKS: SinkTokens = { queries: NONE, keys: NONE }

/** One side of a comparison. */
interface Side {
  shown: OpenAnalysis
  lens: string
  head: Head
}

/** The special tokens of sides with the same tokens, and the sinks of all of their maps. */
export function sinkTokens(sides: readonly Side[]): SinkTokens {
  const [{ analysis }] = sides.map(({ shown }) => shown)
  const { tokens, keyTokens } = analysis
  const found = sides.map((side) => sinksOf(side))
  const keys = areLeft(
    keyTokens,
    keyTokens.map((_, k) => found.some((sinks) => sinks[k])),
  )
  return { queries: tokens === keyTokens ? keys : areLeft(tokens, NONE), keys }
}

/** The queries that a map lets see a key. Maps of whole layers may reach beyond the window of their layer, through the layers before. */
export function windowOf({ windows, maps, tokens }: Analysis, lens: string, head: Head): AttentionWindow | null {
  const layers = head.among
    ? head.among.heads.map(({ layer }) => windows[layer] ?? null)
    : [windows[head.layer] ?? null]
  const [first] = layers
  if (!maps[lens]?.by_layer && layers.every((window) => String(window) === String(first))) return first
  const causal = layers.every((window) => window?.[1] === 0)
  return causal ? [tokens.length - 1, 0] : null
}

const sinksOfMaps = new WeakMap<Matrix, readonly boolean[]>()

/** Unknown until the map is there. */
function sinksOf({ shown, lens, head }: Side): readonly boolean[] {
  const map = shown.maps.map(lens, head)
  if (!map?.exact) return NONE
  const found = sinksOfMaps.get(map) ?? findSinks(map, windowOf(shown.analysis, lens, head))
  sinksOfMaps.set(map, found)
  return found
}

export type Treatment = 'show' | 'mark' | 'hide'

/** How they are drawn; a thumbnail, or a part of a long map, does not know them. */
export const drawnTreatment = ({ maps }: Analysis, lens: string, chosen: Treatment): Treatment =>
  maps[lens]?.stored === false || isLong(maps[lens]?.shape) ? 'show' : chosen

const NEITHER = [NO_SINKS, NO_SINKS] as const

/** What is left out of the first side, or grey there, and of the last. Sides with the same tokens share it, so that their maps can be compared cell by cell. */
export function sidesSinks(
  sides: readonly Side[],
  how: Treatment,
  sameTokens: boolean,
): readonly [SinkTokens, SinkTokens] {
  if (how === 'show') return NEITHER
  const found = sameTokens ? [sinkTokens(sides)] : sides.map((side) => sinkTokens([side]))
  return [found[0], found[found.length - 1]]
}

/** What is drawn along two axes. */
export interface DrawnAxes {
  axes: Axes
  /** Which keys are grey. */
  marked: readonly boolean[]
  /** The map along these axes; `full` is a map along the axes before. */
  draw: (full: Matrix) => Matrix
  /** The same with 0 where keys are grey, so that they count for no scale. */
  count: (drawn: Matrix) => Matrix
}

/** The axes with special tokens and sinks in grey, or without them. */
export function drawnAxes(full: Axes, { queries, keys }: SinkTokens, how: Treatment): DrawnAxes {
  const columns = how === 'show' ? NONE : placesOf(full[1], keys)
  const same = full[0] === full[1]
  const right = how === 'hide' ? keptPlaces(columns) : null
  const left = how !== 'hide' ? null : same ? right : keptPlaces(placesOf(full[0], queries))
  const across = pickAxis(full[1], right)
  const marked = how === 'mark' ? columns : NONE
  return {
    axes: [same ? across : pickAxis(full[0], left), across],
    marked,
    draw: (map) => pickMap(how !== 'show' && !map.exact ? onPlaces(map, full) : map, left, right),
    count: (map) => blankColumns(map, marked),
  }
}

/** A thumbnail resampled to the places of the axes. */
const onPlaces = (map: Matrix, full: Axes) =>
  map.rows === full[0].labels.length && map.cols === full[1].labels.length ? map : groupMap(map, ...full)
