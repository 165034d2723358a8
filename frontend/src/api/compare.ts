/** Comparisons of two analyses, over REST. */

import type { Comparisons } from '../lib/data/source'
import type { Alignment, Likeness, TokenPair } from '../lib/maths/alignment'
import { getJson } from './http'
import type { components } from './schema'

type Schemas = components['schemas']

const readPair = (wire: Schemas['TokenPair']): TokenPair => ({
  tokens: wire.tokens,
  others: wire.other_tokens,
  text: wire.text,
  otherText: wire.other_text,
})

function readAlignment({ by, share, queries, keys }: Schemas['AlignedTokens']): Alignment {
  const rows = queries.map(readPair)
  return { by, share, queries: rows, keys: keys?.map(readPair) ?? rows }
}

type Query = Record<string, string | number>

/** `at` builds the URL of a comparison. */
export function comparisons(at: (id: string, parts: string[], query?: Query) => string): Comparisons {
  async function likeness(id: string, other: string, query: Query): Promise<Likeness> {
    const wire = await getJson<Schemas['ComparedAnalyses']>(at(id, ['compare', other], query))
    return { cosine: wire.cosine, divergence: wire.js_divergence }
  }
  return {
    tokens: async (id, other) =>
      readAlignment(await getJson<Schemas['AlignedTokens']>(at(id, ['compare', other, 'tokens']))),
    heads: (id, other, lens, otherLens) => likeness(id, other, { lens, other_lens: otherLens }),
    matches: (id, other, lens, { layer, head }) => likeness(id, other, { lens, layer, head }),
  }
}
