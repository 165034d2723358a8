/** The search box: requests measures that a search needs, and applies what a sentence selects. */
import type { Analysis, Reasons } from '../lib/data/analysis'
import { choicesOf, type SearchPart, tokensOf, withoutChoice } from '../lib/data/search'
import type { Pointer } from '../state/pointer.svelte'
import type { HeadSearch, SearchInput } from '../state/search.svelte'
import type { Selection } from '../state/selection.svelte'

interface SearchContext {
  search: HeadSearch
  selection: Selection
  pointer: Pointer
  shown: () => Analysis | undefined
  /** Why the model does not support a measure. */
  reasons: () => Reasons
  analyse: () => void
  /** Requests what is selected and missing. */
  complete: () => void
}

const LACKING = 'This shared analysis lacks a measure that the search needs. Analyse the text yourself to search it.'

export function connectSearch({ search, selection, pointer, shown, reasons, analyse, complete }: SearchContext) {
  return {
    async seek(analysis: Analysis, input: SearchInput): Promise<void> {
      if (!(await search.follow(analysis, input))) return
      const refused = search.needs.find((name) => reasons()[name])
      if (refused) search.refuse(`This model does not support ${refused}: ${reasons()[refused]}`)
      else if (selection.shared) search.refuse(LACKING)
      else analyse()
    },

    /** Search by a query, or by a sentence, which may also select other things. */
    async find(text: string): Promise<void> {
      const sort = text === '' && selection.sort === 'rank' ? { sort: 'layer' } : {}
      selection.set({ find: text, ...sort }, 'push')
      const now = shown()
      const view = now && text !== '' ? await search.understand(now, text) : undefined
      if (!view || selection.find !== text) return
      selection.set(choicesOf(view.parts), 'replace')
      const { queries, keys } = tokensOf(view.parts)
      if (queries.length + keys.length > 0) pointer.put({ queries, keys, box: null }, 'replace')
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
