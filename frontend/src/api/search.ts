/** Searches for heads over REST. */
import type { HeadQueries } from '../lib/data/source'
import { getJson } from './http'
import type { WireFound, WireSearchAnswer } from './wire'

/** `of` builds the path of a resource of an analysis. */
export function headQueries(of: (id: string, parts: string[], query: Record<string, string>) => string): HeadQueries {
  return {
    ask: (id, text, pinned) => getJson<WireSearchAnswer>(of(id, ['ask'], pinned ? { q: text, pinned } : { q: text })),
    async heads(id, where, lens) {
      const { ranked_by: rankedBy, ...found } = await getJson<WireFound>(of(id, ['heads'], { where, lens }))
      return { ...found, rankedBy }
    },
  }
}
