/** An analysis on screen, with its tensors and what it is compared with. */
import {
  type Analysis,
  type Declaration,
  type MapInfo,
  measuredLens,
  type Reasons,
  type Request,
} from '../lib/data/analysis'
import { type Changes, findChanges, type Snapshot } from '../lib/data/changes'
import { whyEmpty } from '../lib/data/measures'
import type { Comparison } from './comparison.svelte'
import type { Maps } from './maps.svelte'

/** It is replaced as a whole, so that all of it is from the same analysis. */
export interface OpenAnalysis {
  analysis: Analysis
  maps: Maps
  /** The lens it was opened with. */
  lens: string
  /** What was requested; undefined for an existing analysis. */
  request?: Request | undefined
  /** The other analysis of a comparison; undefined if two lenses of this one are compared. */
  second?: OpenAnalysis | undefined
  comparison?: Comparison
  /** This analysis compared with itself, if the source supports comparisons. */
  itself?: Comparison | undefined
  /** Differences from the previous analysis, if that was a live run. */
  changes?: Changes | undefined
}

/** The analysis with the maps of an effect beside those of its lenses. */
export function withMaps(shown: OpenAnalysis, added: { name: string; info: MapInfo } | undefined): OpenAnalysis {
  if (!added) return shown
  const [{ analysis, maps }, { name, info }] = [shown, added]
  maps.add(name, info)
  const lenses = [...analysis.lenses, name]
  return { ...shown, analysis: { ...analysis, lenses, maps: { ...analysis.maps, [name]: info } } }
}

interface Numbers {
  /** All numbers per head. */
  numbers: readonly Declaration[]
  shown: OpenAnalysis
  lens: string
  /** Why the model lacks measures. */
  reasons: Reasons
}

/** Why a number has no reading; null if it may have one. One that is computed may have none either. */
export function noReading(name: string, { numbers, shown: { analysis, maps }, lens, reasons }: Numbers): string | null {
  const item = numbers.find((one) => one.name === name)
  const values = item && maps.overview(name, measuredLens(item, lens))
  if (values?.every((row) => row.every((value) => value === null))) return 'No head has a reading on this text.'
  const { tokens, keyTokens } = analysis
  return whyEmpty(name, keyTokens === tokens ? tokens : [...tokens, ...keyTokens], reasons)
}

/** What a live run changed. */
export function changesBetween(before: OpenAnalysis, after: OpenAnalysis): Changes | undefined {
  const side = ({ analysis, maps }: OpenAnalysis): Snapshot | undefined => {
    const tiles = maps.grid(after.lens)
    return tiles && analysis.keyTokens === analysis.tokens ? { tokens: analysis.tokens, tiles } : undefined
  }
  const [a, b] = [side(before), side(after)]
  return a && b && before.analysis.model === after.analysis.model ? findChanges(a, b) : undefined
}
