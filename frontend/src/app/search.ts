/** The search box: requests measures that a search needs, and applies what a sentence selects. */
import type { Analysis, Reasons } from '../lib/data/analysis'
import { BEST, choicesOf, type SearchPart, tokensOf, withoutChoice } from '../lib/data/search'
import { strongest } from '../lib/maths/matrix'
import { openHead } from '../lib/text/examples'
import type { OpenAnalysis } from '../state/open-analysis'
import type { Pointer } from '../state/pointer.svelte'
import type { HeadSearch, SearchInput } from '../state/search.svelte'
import type { Selection } from '../state/selection.svelte'

interface SearchContext {
  search: HeadSearch
  selection: Selection
  pointer: Pointer
  shown: () => OpenAnalysis | undefined
  lens: () => string
  /** Do what a sentence asks of the page: `help`, `dark`, `light` or `reset`. */
  command: (name: string) => void
  /** Why the model does not support a measure. */
  reasons: () => Reasons
  analyse: () => Promise<void>
  /** Whether an analysis is on its way. */
  busy: () => boolean
  /** Requests what is selected and missing. */
  complete: () => void
}

const LACKING = 'This shared analysis lacks a measure that the search needs. Analyse the text yourself to search it.'

export function connectSearch({
  search,
  selection,
  pointer,
  shown,
  lens,
  command,
  reasons,
  analyse,
  busy,
  complete,
}: SearchContext) {
  /** The sentence whose best head is opened as soon as it is found. */
  let opening = ''

  /** Request the measures that the search needs. Another analysis is searched as soon as it is on screen. */
  async function compute(analysis: Analysis): Promise<void> {
    const lacking = search.needs.filter((name) => !analysis.measures.includes(name)).join(' and ')
    await analyse()
    if (shown()?.analysis !== analysis || busy()) return
    search.refuse(`The search needs ${lacking}, which could not be computed. Press Analyse to try again.`)
  }

  async function pinStrongest(among: readonly number[]): Promise<void> {
    const open = shown()
    if (!open) return
    const [head, through] = [openHead(open.analysis, selection.head), lens()]
    await open.maps.wantMap(through, head)
    const map = open.maps.map(through, head)
    const cell = map?.exact ? strongest(map, among) : undefined
    if (cell) pointer.put({ queries: [cell.query], keys: [cell.key], box: null }, 'replace')
  }

  return {
    async seek(analysis: Analysis, input: SearchInput): Promise<void> {
      if (!(await search.follow(analysis, input))) {
        const best = search.found?.heads[0]
        const asked = search.view?.parts.some(({ slot, value }) => slot === 'head' && value === BEST)
        if (best && asked && opening === input.text) selection.openHead(best, 'replace')
        if (search.found || search.question) opening = ''
        return
      }
      const refused = search.needs.find((name) => reasons()[name])
      if (refused) search.refuse(`This model does not support ${refused}: ${reasons()[refused]}`)
      else if (selection.shared) search.refuse(LACKING)
      else await compute(analysis)
    },

    /** Search by a query, or by a sentence, which may also select other things. */
    async find(text: string): Promise<void> {
      const sort = text === '' && selection.sort === 'rank' ? { sort: 'layer' } : {}
      opening = text
      selection.set({ find: text, ...sort }, 'push')
      const now = shown()?.analysis
      const { queries: pinned } = pointer.pins
      const view = now && text !== '' ? await search.understand(now, text, pinned) : undefined
      if (!view || selection.find !== text) return
      const { slot, value = '' } = view.parts[0] ?? {}
      if (slot === 'page' && value !== 'measures') {
        if (value === 'reset') selection.reset()
        else selection.set({ find: '' }, 'replace')
        return command(value)
      }
      selection.set(choicesOf(view.parts), 'replace')
      const { queries, keys } = tokensOf(view.parts)
      if (queries.length + keys.length > 0) pointer.put({ queries, keys, box: null }, 'replace')
      const edge = view.parts.find(({ slot }) => slot === 'edge')
      if (edge) await pinStrongest(queries.length > 0 ? queries : /\bit\b/i.test(edge.said) ? pinned : [])
      complete()
    },

    /** Reset what a part of a sentence has set. */
    drop(part: SearchPart): void {
      if (part.slot === 'query' || part.slot === 'key') pointer.clear('replace')
      selection.set(withoutChoice(part), 'replace')
      complete()
    },
  }
}
