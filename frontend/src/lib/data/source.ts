/** The source of analyses, the only interface the viewer knows: a server, an exported page, or fixed data in the gallery and tests. */
import type { Alignment, Likeness } from '../maths/alignment'
import type { Axes } from '../maths/axis'
import type { Part } from '../maths/details'
import type { Matrix, Sums, Tiles } from '../maths/matrix'
import type { Analysis, Declaration, Head, KindSupport, Model, Request, Run } from './analysis'
import type { Batteries } from './batteries'
import type { Effects } from './effects'
import type { Figures } from './figures'
import type { Library } from './models'
import type { FoundHeads, SearchAnswer } from './search'
import type { Shares } from './shares'
import type { Studies } from './studies'

export interface Catalogue {
  models: Model[]
  lenses: Declaration[]
  mechanisms: Declaration[]
  measures: Declaration[]
  /** Methods for effects of heads on a prediction. */
  effects: Declaration[]
}

/** An entry of the reader's history. */
export interface HistoryItem {
  id: string
  model: string
  mechanism: string
  text: string
  textPair: string
  /** Whether the input is an image. */
  image: boolean
  /** What else the maps depend on: the mechanism with its parameters, generation and masked tokens, as JSON. */
  settings: string
  /** Milliseconds since 1970. */
  when: number
}

/** Who is signed in, and where the work is done: in the server process, or in a shared cluster. */
interface Identity {
  user: string | null
  home: string
}

/** Users of the source, if it has any. */
export interface Accounts {
  /** Null if signing in is not required. */
  who(): Promise<Identity>
  signIn(token: string): Promise<string | null>
  signOut(): Promise<void>
  /** The host of the identity provider whose users may sign in; empty if there is none. */
  provider(): Promise<string>
  /** Leave the page for the identity provider, which sends the reader back. */
  leave(): Promise<void>
  /** Why the identity provider's answer, with which the page was opened, signed no one in. */
  refusal?: string
}

/** Comparison of two analyses, if the source supports it. */
export interface Comparisons {
  tokens(id: string, other: string): Promise<Alignment>
  /** Head by head; both analyses must have the same layers and heads. */
  heads(id: string, other: string, lens: string, otherLens: string): Promise<Likeness>
  /** One head of the first analysis and every head of the other. */
  matches(id: string, other: string, lens: string, head: Head): Promise<Likeness>
}

/** Searches for heads by a query or a sentence, if the source supports them. */
export interface HeadQueries {
  /** `pinned`: the indices of the pinned queries, which "it" means. */
  ask(id: string, text: string, pinned?: string): Promise<SearchAnswer>
  heads(id: string, query: string, lens: string): Promise<FoundHeads>
}

export interface Thumbnails {
  /** Special tokens and sinks count as 0. */
  without: boolean
  /** The most cells along a side. */
  side: number
  /** The most tokens along a side; 0 if unknown. */
  tokens: number
}

/** An image or a long text to begin with. */
export interface Sample {
  name: string
  url: string
  /** Who made it, and the licence. */
  credit: string
}

export interface Source {
  accounts?: Accounts
  /** Shares of analyses. */
  shares?: Shares
  headQueries?: HeadQueries
  comparisons?: Comparisons
  effects?: Effects
  /** Tests of all heads of a model. */
  batteries?: Batteries
  figures?: Figures
  studies?: Studies
  /** Models that can be added and removed. */
  library?: Library
  /** Images and long texts that come with the page. */
  samples?: readonly Sample[]
  texts?: readonly Sample[]
  catalogue(): Promise<Catalogue>
  /** What a model supports, for each kind of its attention; the default kind first. */
  support(model: string): Promise<KindSupport[]>
  /** Return as soon as the run has an id, finished or not; follow it with `watch`. */
  submit(request: Request, signal: AbortSignal): Promise<Analysis>
  /** Call back until a terminal status has been reported. */
  watch(id: string, report: (run: Run) => void, signal: AbortSignal): Promise<void>
  cancel(id: string): Promise<void>
  /** A page of the reader's history, latest first: the first one, or the one that begins at the cursor `from`. */
  recent(from?: string): Promise<{ items: HistoryItem[]; next: string | null }>
  analysis(id: string, signal: AbortSignal): Promise<Analysis>
  grid(id: string, lens: string, how: Thumbnails, signal: AbortSignal): Promise<Tiles>
  map(id: string, lens: string, head: Head, signal: AbortSignal): Promise<Matrix>
  /** A part of a map; without it maps are read as a whole, however long. */
  mapPart?(id: string, lens: string, head: Head, part: Part, signal: AbortSignal): Promise<Matrix>
  /** A map whose queries and keys are folded to the places of axes; without it a whole map is read and folded. */
  mapFolded?(id: string, lens: string, head: Head, axes: Axes, signal: AbortSignal): Promise<Matrix>
  /** The sums of a map over its keys and queries, for maps that are read in parts. */
  sums?(id: string, lens: string, head: Head, signal: AbortSignal): Promise<Sums>
  /** One number per head, [L][H]; `measure.column` for a measure with several columns. */
  overview(id: string, measure: string, lens: string, signal: AbortSignal): Promise<(number | null)[][]>
  /** The values of one head along its tokens, or a single number. */
  measure(id: string, measure: string, lens: string, head: Head, signal: AbortSignal): Promise<(number | null)[]>
  exportUrl(id: string, format: string): string | null
  /** A web page with the viewer and these heads, or all of them. `view`: what it shows first, as in the address. */
  exportPage?(id: string, heads: readonly string[], view: string): Promise<Blob>
}

/** The message for an error: the source's own, or that of a fault in the page, with what to do. */
export const errorSentence = (error: unknown, next: string): string =>
  error instanceof SourceError ? error.message : `Something went wrong in the page: ${String(error)}. ${next}`

/** A problem reported by the source; `message` is shown to the reader. */
export class SourceError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly status: number,
    /** The limit that was exceeded. */
    readonly limit: number | null = null,
    /** The actual amount. */
    readonly actual: number | null = null,
  ) {
    super(message)
    this.name = 'SourceError'
  }
}
