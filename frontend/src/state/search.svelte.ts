/** A search for heads: how the sentence was understood, the measures it needs, and the heads found. */
import type { Analysis } from '../lib/data/analysis'
import {
  composeQuery,
  type FoundHeads,
  isQuery,
  measureOf,
  type Question,
  readSort,
  type SearchAnswer,
  type SearchPart,
  type SearchView,
} from '../lib/data/search'
import { type HeadQueries, SourceError } from '../lib/data/source'
import { Cache } from '../lib/net/cache'
import { latest } from '../lib/net/latest'

export interface SearchInput {
  /** A query or a sentence. */
  text: string
  /** As in the address. */
  sort: string
  lens: string
}

export class HeadSearch {
  view = $state.raw<SearchView>()
  question = $state.raw<Question>()
  found = $state.raw<FoundHeads>()
  error = $state('')
  busy = $state(false)
  /** Measures that the analysis must have for the search. */
  needs = $state.raw<readonly string[]>([])

  /** What the answer on screen is to. */
  #text = ''
  #expected: SearchView | undefined
  /** The pinned queries when the sentence was typed, which "it" means. */
  #pinned = ''
  #prepared = false
  #analysis: Analysis | undefined
  #asked = new Cache<SearchAnswer>(32)
  #found = new Cache<FoundHeads>(32)
  #task = latest((signal, analysis: Analysis, search: SearchInput) => this.#find(signal, analysis, search))

  constructor(private readonly queries: HeadQueries | undefined) {}

  get able(): boolean {
    return this.queries !== undefined
  }

  /** Names of the heads found; undefined if the search does not filter. */
  lit: ReadonlySet<string> | undefined = $derived(
    this.found && this.view?.parts.some(({ slot }) => slot === 'where' || slot === 'limit')
      ? new Set(this.found.heads.map(({ layer, head }) => `${layer}.${head}`))
      : undefined,
  )

  /** The view that a sentence asks for; undefined if it is ambiguous or cannot be understood. */
  async understand(analysis: Analysis, text: string, pinned: readonly number[] = []): Promise<SearchView | undefined> {
    this.#pinned = pinned.join(' ')
    try {
      return (await this.#ask(analysis.id, text)).view ?? undefined
    } catch {
      return undefined
    }
  }

  /** Returns whether measures have to be computed first, which `needs` then lists. */
  async follow(analysis: Analysis, search: SearchInput): Promise<boolean> {
    this.#analysis = analysis
    // An answer never stands under another question.
    if (search.text !== this.#text) this.#show({ view: this.#expected })
    this.#text = search.text
    this.#expected = undefined
    if (!this.queries || (search.text === '' && readSort(search.sort).by !== 'measure')) {
      this.#task.stop()
      this.#show({})
      return false
    }
    this.busy = true
    try {
      const missing = (await this.#task(analysis, search)) ?? false
      return missing
    } catch (error) {
      this.#show({ error: error instanceof SourceError ? error.message : String(error) })
      return false
    }
  }

  /** Show a changed query before its answer arrives. */
  expect(parts: SearchPart[]): void {
    if (this.view) this.view = this.#expected = { ...this.view, parts }
  }

  /** Load what sentences need to be understood, as one will probably be typed. */
  prepare(): void {
    if (this.#prepared || !this.#analysis) return
    this.#prepared = true
    void this.#ask(this.#analysis.id, '').catch(() => undefined)
  }

  /** What the search needs is not available. */
  refuse(sentence: string): void {
    this.#show({ view: this.view, error: sentence })
  }

  async #find(signal: AbortSignal, analysis: Analysis, { text, sort, lens }: SearchInput): Promise<boolean> {
    const asked = text === '' ? { view: null, question: null } : await this.#ask(analysis.id, text)
    if (signal.aborted) return false
    const view = asked.view ?? undefined
    const question = asked.question ?? undefined
    const order = readSort(sort)
    if (question || (!view?.parts.some(isQuery) && order.by !== 'measure')) {
      this.#show({ view, question })
      return false
    }
    const needs = [...(view?.measures ?? []), ...(order.by === 'measure' ? [measureOf(order.measure)] : [])]
    if (needs.some((name) => !analysis.measures.includes(name))) {
      this.view = view
      this.needs = needs
      return true
    }
    const query = composeQuery(view?.parts ?? [], order)
    const found = await this.#found.get(`${analysis.id} ${lens} ${query}`, () =>
      this.queries!.heads(analysis.id, query, lens),
    )
    if (!signal.aborted) this.#show({ view, found, needs })
    return false
  }

  #ask(id: string, text: string): Promise<SearchAnswer> {
    const pinned = /\b(it|this|that)\b/i.test(text) ? this.#pinned : ''
    return this.#asked.get(`${id} ${pinned}, ${text}`, () => this.queries!.ask(id, text, pinned))
  }

  #show({
    view,
    question,
    found,
    error = '',
    needs = [],
  }: Partial<Pick<HeadSearch, 'view' | 'question' | 'found' | 'error' | 'needs'>>): void {
    Object.assign(this, { view, question, found, error, needs, busy: false })
  }
}
