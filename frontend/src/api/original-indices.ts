/** Wrap a source so that arrays of partial analyses are scattered to the original indices of layers and heads. */

import type { Analysis, Subset } from '../lib/data/analysis'
import { type Effects, isMapsName } from '../lib/data/effects'
import type { Comparisons, Source } from '../lib/data/source'
import { scatter, scatterTiles } from '../lib/data/subset'
import type { Likeness } from '../lib/maths/alignment'

export function withOriginalIndices(source: Source): Source {
  const subsets = new Map<string, Subset>()
  const seen = (analysis: Analysis): Analysis => {
    if (analysis.subset) subsets.set(analysis.id, analysis.subset)
    return analysis
  }
  return {
    ...source,
    ...(source.comparisons ? { comparisons: compareWithOriginalIndices(source.comparisons, subsets) } : {}),
    ...(source.effects ? { effects: effectsWithMaps(source.effects, subsets) } : {}),
    submit: async (request, signal) => seen(await source.submit(request, signal)),
    analysis: async (id, signal) => seen(await source.analysis(id, signal)),
    async grid(id, lens, how, signal) {
      const [tiles, subset] = [await source.grid(id, lens, how, signal), subsets.get(isMapsName(lens) ? lens : id)]
      return subset ? scatterTiles(tiles, subset) : tiles
    },
    async overview(id, measure, lens, signal) {
      const [values, subset] = [await source.overview(id, measure, lens, signal), subsets.get(id)]
      return subset ? scatter(values, subset, null) : values
    },
  }
}

/** The maps of an effect have layers and heads of their own. */
function effectsWithMaps(source: Effects, subsets: Map<string, Subset>): Effects {
  return {
    async compute(...asked) {
      const effect = await source.compute(...asked)
      if (effect.maps?.subset) subsets.set(effect.maps.name, effect.maps.subset)
      return effect
    },
  }
}

function compareWithOriginalIndices(source: Comparisons, subsets: ReadonlyMap<string, Subset>): Comparisons {
  const likeness = ({ cosine, divergence }: Likeness, subset: Subset | undefined): Likeness =>
    subset
      ? { cosine: scatter(cosine, subset, null), divergence: divergence && scatter(divergence, subset, null) }
      : { cosine, divergence }
  return {
    ...source,
    heads: async (id, other, ...more) => likeness(await source.heads(id, other, ...more), subsets.get(id)),
    matches: async (id, other, ...more) => likeness(await source.matches(id, other, ...more), subsets.get(other)),
  }
}
