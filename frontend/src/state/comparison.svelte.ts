/** A comparison of two analyses, or of two lenses of one: aligned tokens, similarity of heads, and differences of maps. */

import { type Analysis, type Declaration, type Head, headName } from '../lib/data/analysis'
import { headNumber } from '../lib/data/measures'
import type { Comparisons } from '../lib/data/source'
import {
  type Alignment,
  ENOUGH,
  flipPairs,
  type Likeness,
  pairAxis,
  pairedMap,
  partialCosine,
  type TokenPair,
} from '../lib/maths/alignment'
import type { Axis } from '../lib/maths/axis'
import { difference, type Matrix } from '../lib/maths/matrix'
import { Cache } from '../lib/net/cache'

/** One number per head, [L][H], and its declaration. */
export interface HeadNumbers {
  declaration: Declaration
  values: (number | null)[][] | undefined
}

export const COSINE =
  'The cosine between the maps, each flattened to a vector: 1 if they are equal up to a factor. Even unrelated weights are rarely near 0, because many maps share vertical stripes.'
export const DIVERGENCE =
  'How differently the two maps distribute each query’s attention, averaged over queries: 0 for identical rows, 1 for rows that share no key.'

const declared = (name: string, title: string, doc: string, unit: string, signed: boolean): Declaration =>
  headNumber({ name: `compared:${name}`, title, doc, not: '', unit, range: [signed ? -1 : 0, 1], signed })

/** Measures of similarity that heads can be coloured by, if both analyses have the same heads. Nonnegative maps have a cosine of at least 0. */
export function likenessNumbers(likeness: Likeness | undefined): HeadNumbers[] {
  const signed = likeness?.divergence === null
  const cosine = { declaration: declared('cosine', 'Cosine', COSINE, 'cosine', signed), values: likeness?.cosine }
  if (signed) return [cosine]
  const divergence = declared('divergence', 'Jensen-Shannon divergence', DIVERGENCE, 'bits', false)
  return [cosine, { declaration: divergence, values: likeness?.divergence ?? undefined }]
}

/** The token pairs of one axis in both directions, and both as axes. */
interface Link {
  pairs: readonly TokenPair[]
  back: readonly TokenPair[]
  axis: Axis
  backAxis: Axis
}

/** Alignment of queries and keys, if their tokens differ in number or position. */
export interface Links {
  queries: Link
  keys: Link
}

export class Comparison {
  #arrivals = $state(0)
  #likeness = new Cache<Likeness>(16)
  #differences = new WeakMap<Matrix, WeakMap<Matrix, Matrix>>()
  /** Null if both sides have the same tokens. */
  readonly links: Links | null

  constructor(
    private readonly source: Comparisons | undefined,
    readonly one: Analysis,
    readonly other: Analysis,
    readonly alignment: Alignment | null,
    private readonly failed: (error: unknown) => void,
  ) {
    this.links = alignment?.by === 'word' ? linksOf(alignment, one, other) : null
  }

  /** Why maps cannot be subtracted; empty if they can. */
  get refusal(): string {
    if (this.alignment && this.alignment.share < ENOUGH)
      return 'The two have too few words in common for a difference: fewer than half have a counterpart.'
    return ''
  }

  /** Whether both have the same layers and heads, so that heads can be compared one by one. */
  get sameHeads(): boolean {
    const heads = ({ layers, heads, subset }: Analysis) => JSON.stringify(subset ?? [layers, heads])
    return heads(this.one) === heads(this.other)
  }

  get headByHead(): boolean {
    return this.sameHeads && this.refusal === ''
  }

  /** Similarity of every head to the same head of the other side; undefined until known, or if not available. */
  likeness(lens: string, otherLens: string): Likeness | undefined {
    void this.#arrivals
    return this.#likeness.peek(`${lens} ${otherLens}`)
  }

  wantLikeness(lens: string, otherLens: string): void {
    if (!this.headByHead || !this.compares(lens, otherLens)) return
    this.#want(`${lens} ${otherLens}`, ({ heads }) => heads(this.one.id, this.other.id, lens, otherLens))
  }

  /** Similarity of one head to every head of the other side. */
  matches(lens: string, head: Head): Likeness | undefined {
    void this.#arrivals
    return this.#likeness.peek(`${lens} ${headName(this.#at(lens, head))}`)
  }

  wantMatches(lens: string, head: Head): void {
    if (this.refusal || !this.compares(lens, lens)) return
    const at = this.#at(lens, head)
    this.#want(`${lens} ${headName(at)}`, ({ matches }) => matches(this.one.id, this.other.id, lens, at))
  }

  /** A lens with one map per layer has the same map for all heads. */
  #at(lens: string, { layer, head }: Head): Head {
    return { layer, head: this.one.maps[lens]?.by_layer ? 0 : head }
  }

  /** Whether heads are compared: neither thumbnails nor maps of effects are. */
  compares(lens: string, otherLens: string): boolean {
    return this.one.maps[lens]?.stored === true && this.other.maps[otherLens]?.stored === true
  }

  #want(key: string, ask: (source: Comparisons) => Promise<Likeness>): void {
    const { source } = this
    if (!source || this.#likeness.peek(key)) return
    this.#likeness
      .get(key, () => ask(source))
      .then(() => {
        this.#arrivals += 1
      }, this.failed)
  }

  /** The other map minus the first, over aligned tokens; undefined until both are exact enough to subtract. */
  difference(one: Matrix | undefined, other: Matrix | undefined): Matrix | undefined {
    if (!one || !other || this.refusal) return undefined
    if (this.links ? !(one.exact && other.exact) : one.rows !== other.rows || one.cols !== other.cols) return undefined
    const known = this.#differences.get(one) ?? new WeakMap<Matrix, Matrix>()
    this.#differences.set(one, known)
    const made = known.get(other) ?? this.#subtracted(one, other)
    known.set(other, made)
    return made
  }

  /** The cosine of two maps without special tokens; null unless both are exact and have comparable tokens besides. */
  cosineOfWords(one: Matrix | undefined, other: Matrix | undefined): number | null {
    if (!one?.exact || !other?.exact || this.refusal) return null
    if (this.links) {
      const { queries, keys } = this.links
      const [a, b] = [pairedMap(one, queries.pairs, keys.pairs), pairedMap(other, queries.back, keys.back)]
      return partialCosine(a, b, queries.axis.special, keys.axis.special)
    }
    const special = (tokens: Analysis['tokens']) => tokens.map(({ kind }) => kind === 'special')
    return one.rows === other.rows && one.cols === other.cols
      ? partialCosine(one, other, special(this.one.tokens), special(this.one.keyTokens))
      : null
  }

  #subtracted(one: Matrix, other: Matrix): Matrix {
    if (!this.links) return difference(other, one)
    const { queries, keys } = this.links
    return difference(pairedMap(other, queries.back, keys.back), pairedMap(one, queries.pairs, keys.pairs))
  }
}

function linksOf({ queries, keys }: Alignment, one: Analysis, other: Analysis): Links {
  const link = (pairs: readonly TokenPair[], tokens: Analysis['tokens'], others: Analysis['tokens']): Link => {
    const back = flipPairs(pairs)
    return { pairs, back, axis: pairAxis(pairs, tokens), backAxis: pairAxis(back, others) }
  }
  const rows = link(queries, one.tokens, other.tokens)
  return { queries: rows, keys: keys === queries ? rows : link(keys, one.keyTokens, other.keyTokens) }
}
