/** What the views of a page share, passed by Svelte's context instead of through props. */
import { createContext } from 'svelte'
import type { Reasons } from '../lib/data/analysis'
import type { HeadScores } from '../lib/data/batteries'
import type { SearchPart } from '../lib/data/search'
import type { Studies } from '../lib/data/studies'
import type { Favourites } from './favourites.svelte'
import type { HeadEffects } from './head-effects.svelte'
import type { KeyedRun } from './keyed-run.svelte'
import type { ModelLibrary } from './model-library.svelte'
import type { Pointer } from './pointer.svelte'
import type { HeadSearch } from './search.svelte'
import type { Selection } from './selection.svelte'
import type { StudySelection } from './study/selection.svelte'
import type { Theme } from './theme.svelte'

interface Masking {
  /** Mask these tokens and no others. */
  mask: (tokens: readonly number[]) => void
  /** Why no token can be masked; empty if one may be. */
  readonly unmaskable: string
  /** Compare the masked text with itself, unmasked. */
  unmasked: () => void
}

interface AnalysisContext {
  selection: Selection
  pointer: Pointer
  search: HeadSearch
  theme: Theme
  /** The numbers that are starred. */
  favourites: Favourites
  /** Search for heads by a query or a sentence. */
  find: (text: string) => void
  /** Reset what a part of a sentence has set. */
  drop: (part: SearchPart) => void
  /** How far the run is that adds this measure to the analysis on screen; empty if none does. */
  adding: (measure: string) => string
  /** Measures that the model does not support, with the reason. */
  readonly reasons: Reasons
  /** Request what is selected and has not been computed. */
  complete: () => void
  /** Whether the analysis of another text has been computed, and is about to replace this one. */
  readonly leaving?: boolean
  /** The title of a model, by its name. */
  titleOf: (model: string) => string
  /** The URL of an analysis as a file of a format; null if not available. */
  exportUrl: (id: string, format: string) => string | null
  /** Chosen heads of an analysis, or all of them, as a web page that opens with this view; undefined if not available. */
  exportPage?: ((id: string, heads: readonly string[]) => Promise<Blob>) | undefined
  /** What heads do to predictions. */
  effects: HeadEffects
  /** Tests of all heads, by model; undefined if there are none. */
  tests?: KeyedRun<{ key: string }, HeadScores> | undefined
  /** Masking of tokens; undefined if analyses cannot be requested. */
  masking?: Masking | undefined
}
export const [getAnalysisContext, setAnalysisContext] = createContext<AnalysisContext>()

interface StudyContext {
  studies: Studies
  selection: StudySelection
  theme: Theme
  /** The title of a model, by its name. */
  titleOf: (model: string) => string
  /** The message for an error; asks the reader to sign in if that is what it takes. */
  fail: (error: unknown) => string
}
export const [getStudyContext, setStudyContext] = createContext<StudyContext>()

/** The sheet in which models are searched, added and removed. */
export const [getModelLibrary, setModelLibrary] = createContext<ModelLibrary>()
