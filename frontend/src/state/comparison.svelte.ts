/** Two analyses together, or two lenses of one: which tokens stand for the same, how alike heads are, and where they differ. */

import { type Analysis, type Declaration, type Head, headName } from '../lib/data/analysis'
import type { Comparisons } from '../lib/data/source'
import {
  type Alignment,
  ENOUGH,
  flipPairs,
  type Likeness,
  pairAxis,
  pairedMap,
  type TokenPair,
} from '../lib/maths/alignment'
import type { Axis } from '../lib/maths/axis'
import { difference, type Matrix } from '../lib/maths/matrix'
import { Cache } from '../lib/net/cache'

/** One number per head, [L][H], and what it says. */
export interface HeadNumbers {
  declaration: Declaration
  values: (number | null)[][] | undefined
}

export const COSINE =
  'The cosine between the two maps, read as one long vector each: 1 for maps that agree but for a factor. Unrelated weights are rarely near 0: they tend to share stripes.'
export const DIVERGENCE =
  'How differently the two maps spread each query’s attention, in the mean over queries: 0 for the same rows, 1 for rows that share no key.'

const declared = (name: string, title: string, doc: string, unit: string, signed: boolean): Declaration => ({
  name: `compared:${name}`,
  title,
  doc,
  not: '',
  axes: ['L', 'H'],
  unit,
  range: [signed ? -1 : 0, 1],
  signed,
  lenses: [],
  citation: '',
  columns: [],
  units: {},
  classes: [],
  params: {},
})

/** What heads can be coloured by where two analyses have the same ones. Maps that are never negative have a cosine of 0 at least. */
export function likenessNumbers(likeness: Likeness | undefined): HeadNumbers[] {
  const signed = likeness?.divergence === null
  const cosine = { declaration: declared('cosine', 'Cosine', COSINE, 'cosine', signed), values: likeness?.cosine }
  if (signed) return [cosine]
  const divergence = declared('divergence', 'Jensen-Shannon divergence', DIVERGENCE, 'bits', false)
  return [cosine, { declaration: divergence, values: likeness?.divergence ?? undefined }]
}

/** The pairs of one side, and both as axes. */
interface Link {
  pairs: readonly TokenPair[]
  back: readonly TokenPair[]
  axis: Axis
  backAxis: Axis
}

/** Queries and keys whose tokens have counterparts of another number or at another place. */
export interface Links {
  queries: Link
  keys: Link
}

export class Comparison {
  #arrivals = $state(0)
  #likeness = new Cache<Likeness>(16)
  #differences = new WeakMap<Matrix, WeakMap<Matrix, Matrix>>()
  /** Null where tokens are their own counterparts. */
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

  /** Why no difference can be drawn; empty where it can. */
  get refusal(): string {
    if (this.alignment && this.alignment.share < ENOUGH)
      return 'The two have too few words in common to subtract one map from the other: fewer than half have a counterpart.'
    return ''
  }

  /** Both have the same layers and heads, so that head by head can be compared. */
  get sameHeads(): boolean {
    const heads = ({ layers, heads, subset }: Analysis) => JSON.stringify(subset ?? [layers, heads])
    return heads(this.one) === heads(this.other)
  }

  get headByHead(): boolean {
    return this.sameHeads && this.refusal === ''
  }

  /** How alike the maps of every head are; undefined until it is known, or where it never will be. */
  likeness(lens: string, otherLens: string): Likeness | undefined {
    void this.#arrivals
    return this.#likeness.peek(`${lens} ${otherLens}`)
  }

  wantLikeness(lens: string, otherLens: string): void {
    if (!this.headByHead || !this.#here(lens, otherLens)) return
    this.#want(`${lens} ${otherLens}`, ({ heads }) => heads(this.one.id, this.other.id, lens, otherLens))
  }

  /** How alike one head is to every head of the other. */
  matches(lens: string, head: Head): Likeness | undefined {
    void this.#arrivals
    return this.#likeness.peek(`${lens} ${headName(head)}`)
  }

  wantMatches(lens: string, head: Head): void {
    if (this.refusal || !this.#here(lens, lens)) return
    this.#want(`${lens} ${headName(head)}`, ({ matches }) => matches(this.one.id, this.other.id, lens, head))
  }

  /** Thumbnails are not compared. */
  #here(lens: string, otherLens: string): boolean {
    return this.one.maps[lens]?.stored !== false && this.other.maps[otherLens]?.stored !== false
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

  /** The other map minus the first, over what has counterparts; undefined until both are exact enough to subtract. */
  difference(one: Matrix | undefined, other: Matrix | undefined): Matrix | undefined {
    if (!one || !other || this.refusal) return undefined
    if (this.links ? !(one.exact && other.exact) : one.rows !== other.rows || one.cols !== other.cols) return undefined
    const known = this.#differences.get(one) ?? new WeakMap<Matrix, Matrix>()
    this.#differences.set(one, known)
    const made = known.get(other) ?? this.#subtracted(one, other)
    known.set(other, made)
    return made
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
