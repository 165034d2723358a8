/** A source whose arrays are by place, seen by number: of an analysis of some heads only, the others are there, and empty. */

import type { Analysis } from '../lib/data/analysis'
import type { Comparisons, Source } from '../lib/data/source'
import { type Analysed, spread, spreadTiles } from '../lib/data/subset'
import type { Likeness } from '../lib/maths/alignment'

export function numbered(source: Source): Source {
  const parts = new Map<string, Analysed>()
  const seen = (analysis: Analysis): Analysis => {
    if (analysis.part) parts.set(analysis.id, analysis.part)
    return analysis
  }
  return {
    ...source,
    ...(source.comparisons ? { comparisons: compared(source.comparisons, parts) } : {}),
    submit: async (request, signal) => seen(await source.submit(request, signal)),
    analysis: async (id, signal) => seen(await source.analysis(id, signal)),
    async grid(id, lens, signal) {
      const [tiles, part] = [await source.grid(id, lens, signal), parts.get(id)]
      return part ? spreadTiles(tiles, part) : tiles
    },
    async overview(id, measure, lens, signal) {
      const [values, part] = [await source.overview(id, measure, lens, signal), parts.get(id)]
      return part ? spread(values, part, null) : values
    },
  }
}

function compared(source: Comparisons, parts: ReadonlyMap<string, Analysed>): Comparisons {
  const likeness = ({ cosine, divergence }: Likeness, part: Analysed | undefined): Likeness =>
    part
      ? { cosine: spread(cosine, part, null), divergence: divergence && spread(divergence, part, null) }
      : { cosine, divergence }
  return {
    ...source,
    heads: async (id, other, ...more) => likeness(await source.heads(id, other, ...more), parts.get(id)),
    matches: async (id, other, ...more) => likeness(await source.matches(id, other, ...more), parts.get(other)),
  }
}
