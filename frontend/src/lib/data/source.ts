/** Where analyses come from. The viewer knows this interface only: a server, or fixed data for the gallery and tests. */
import type { Alignment, Likeness } from '../maths/alignment'
import type { Matrix, Tiles } from '../maths/matrix'
import type { Analysis, Declaration, Head, KindSupport, Model, Request, Run } from './analysis'
import type { Figures } from './figures'
import type { FoundHeads, SearchAnswer } from './search'
import type { Shares } from './shares'
import type { Studies } from './studies'

export interface Catalogue {
  models: Model[]
  lenses: Declaration[]
  mechanisms: Declaration[]
  measures: Declaration[]
}

/** An analysis of this reader's, in the list of them. */
export interface HistoryItem {
  id: string
  model: string
  mechanism: string
  text: string
  textPair: string
  /** Of an image, not of a text. */
  image: boolean
  /** Milliseconds since 1970. */
  when: number
}

/** Who asks, and what does the work: the source's own process, or a cluster that others use, too. */
interface Identity {
  user: string | null
  home: string
}

/** Users of the source, where it has any. */
export interface Accounts {
  /** Who is signed in, null where nobody has to be; and to which home. */
  who(): Promise<Identity>
  signIn(token: string): Promise<string | null>
  signOut(): Promise<void>
}

/** How two analyses of a source compare, where it can say. */
export interface Comparisons {
  tokens(id: string, other: string): Promise<Alignment>
  /** Head by head: both need the same layers and heads. */
  heads(id: string, other: string, lens: string, otherLens: string): Promise<Likeness>
  /** One head of the first and every head of the other. */
  matches(id: string, other: string, lens: string, head: Head): Promise<Likeness>
}

/** Heads found by a query or a sentence, where the source can. */
export interface HeadQueries {
  ask(id: string, text: string): Promise<SearchAnswer>
  heads(id: string, query: string, lens: string): Promise<FoundHeads>
}

export interface Source {
  accounts?: Accounts
  /** Of analyses. */
  shares?: Shares
  headQueries?: HeadQueries
  comparisons?: Comparisons
  figures?: Figures
  studies?: Studies
  catalogue(): Promise<Catalogue>
  /** What a model supports, for each kind of its attention, the default one first. */
  support(model: string): Promise<KindSupport[]>
  /** Answers as soon as the run has an id, done or not; `watch` follows it then. */
  submit(request: Request, signal: AbortSignal): Promise<Analysis>
  /** Calls back until a terminal status has been reported. */
  watch(id: string, report: (run: Run) => void, signal: AbortSignal): Promise<void>
  cancel(id: string): Promise<void>
  /** What this reader has had analysed, the newest first. */
  recent(): Promise<HistoryItem[]>
  analysis(id: string, signal: AbortSignal): Promise<Analysis>
  grid(id: string, lens: string, signal: AbortSignal): Promise<Tiles>
  map(id: string, lens: string, head: Head, signal: AbortSignal): Promise<Matrix>
  /** One number per head, [L][H]; of a measure with several, `measure.column`. */
  overview(id: string, measure: string, lens: string, signal: AbortSignal): Promise<(number | null)[][]>
  /** The values of one head along its tokens, or a single number. */
  measure(id: string, measure: string, lens: string, head: Head, signal: AbortSignal): Promise<(number | null)[]>
  exportUrl(id: string, format: string): string | null
}

/** A problem the source reports; `message` is the sentence to show. */
export class SourceError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly status: number,
    /** How much is taken, where something was too much. */
    readonly limit: number | null = null,
    /** How much there was. */
    readonly actual: number | null = null,
  ) {
    super(message)
    this.name = 'SourceError'
  }
}
