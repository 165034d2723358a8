/** The pointer as seen from the other side of a comparison, where it highlights the aligned tokens. */
import { pairedTokens } from '../lib/maths/alignment'
import { type Box, type Highlight, places, type Span } from '../lib/maths/highlight'
import type { Links } from './comparison.svelte'
import type { Pointer } from './pointer.svelte'

type Place = number | null

export class LinkedPointer {
  /** The tokens pointed at on the other side, which may not be aligned with any here. */
  #query = $state<Place>(null)
  #key = $state<Place>(null)

  constructor(
    private readonly pointer: Pointer,
    private readonly links: () => Links | null,
  ) {}

  lit: Highlight = $derived.by(() => {
    const [links, { lit }] = [this.links(), this.pointer]
    if (!links) return lit
    const { queries, keys } = links
    return {
      queries: withOwn(pairedTokens(queries.axis, queries.pairs, lit.queries), this.#query),
      keys: withOwn(pairedTokens(keys.axis, keys.pairs, lit.keys), this.#key),
      box: null,
    }
  })

  hover(query: Place, key: Place): void {
    this.#query = query
    this.#key = key
    this.pointer.hover(...this.#back(query, key))
  }

  pin(query: Place, key: Place, add: boolean): void {
    const [row, column] = this.#back(query, key)
    if (row !== null || column !== null) this.pointer.pin(row, column, add)
  }

  select(box: Box): void {
    const links = this.links()
    if (!links) {
      this.pointer.select(box)
      return
    }
    const back = ({ backAxis, back }: Links['queries'], span: Span | null): Span | null => {
      const tokens = pairedTokens(backAxis, back, places(span))
      return tokens.length === 0 ? null : [Math.min(...tokens), Math.max(...tokens) + 1]
    }
    const [queries, keys] = [back(links.queries, box.queries), back(links.keys, box.keys)]
    if (queries || keys) this.pointer.select({ queries, keys })
  }

  #back(query: Place, key: Place): [Place, Place] {
    const links = this.links()
    if (!links) return [query, key]
    const back = ({ backAxis, back }: Links['queries'], token: Place) =>
      token === null ? null : (pairedTokens(backAxis, back, [token])[0] ?? null)
    return [back(links.queries, query), back(links.keys, key)]
  }
}

const withOwn = (tokens: readonly number[], own: Place) =>
  own === null || tokens.includes(own) ? tokens : [...tokens, own]
