/** Maps that are likely to be opened next are read while the reader looks at one. */
import type { Analysis, Head } from '../lib/data/analysis'
import { neighbours } from '../lib/maths/merge'
import type { OpenAnalysis } from '../state/open-analysis'

interface Open {
  analysis: Analysis
  maps: OpenAnalysis['maps']
  head: Head
  lens: string
  lenses: readonly string[]
  /** The map of the head is there, and nothing is being computed, which would be needed sooner. */
  ready: boolean
}

/** In tokens: longer maps are many megabytes and would delay the next head. */
const LONG = 1024
const REST_MS = { short: 120, long: 1000 }

/** Once a head is ready, read its other lenses, and its neighbours. One at a time, so that other requests wait for one map at most. */
export function readAhead(open: () => Open): void {
  $effect(() => {
    const { analysis, maps, head, lens, lenses, ready } = open()
    if (!ready) return
    const leaving = new AbortController()
    const until = leaving.signal
    const ahead = async () => {
      for (const name of lenses) maps.wantGrid(name)
      const others = lenses.filter((name) => name !== lens)
      const near = neighbours(head, analysis)
      const likely = [...others.map((name) => [name, head] as const), ...near.map((next) => [lens, next] as const)]
      for (const [name, at] of likely.slice(0, maps.spare(lens)))
        if (!until.aborted) await maps.wantMap(name, at, until)
    }
    const timer = setTimeout(() => void ahead(), analysis.tokens.length > LONG ? REST_MS.long : REST_MS.short)
    return () => {
      leaving.abort()
      clearTimeout(timer)
    }
  })
}
