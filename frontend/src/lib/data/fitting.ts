/** Requests that ask for less when the source has no room for the maps of all lenses. */

import { bytes } from '../text/format'
import type { Analysis, Request, Warning } from './analysis'
import { SourceError } from './source'

const NO_ROOM = 'attention-budget-exceeded'
const LEFT_OUT = 'left-out'

/** Smaller requests to fall back to: maps of the open lens only, then thumbnails and numbers without maps. */
export function smallerRequests(request: Request, open: string): Request[] {
  const alone = request.lenses.filter(({ name }) => name === open)
  const steps = alone.length > 0 && request.lenses.length > 1 ? [{ ...request, lenses: alone }] : []
  return [...steps, { ...request, maps: false }]
}

interface FitResult<T> {
  found: T
  /** Why the first request was refused; undefined if it fitted. */
  refused: SourceError | undefined
}

/** Try requests in order until one fits; throw the first refusal if none does. */
export async function firstThatFits<A, T>(all: readonly A[], attempt: (one: A) => Promise<T>): Promise<FitResult<T>> {
  let refused: SourceError | undefined
  for (const one of all) {
    try {
      return { found: await attempt(one), refused }
    } catch (error) {
      if (!(error instanceof SourceError && error.code === NO_ROOM)) throw error
      refused ??= error
    }
  }
  throw refused
}

/** The most entries of all maps in a web page. */
const PAGE_ENTRIES = 128 * 2 ** 20

/** Whether a web page of all heads is likely to be small enough. */
export function pageHasAll({ maps }: Pick<Analysis, 'maps'>): boolean {
  const sizes = Object.values(maps).map(({ shape }) => shape.reduce((product, size) => product * size, 1))
  return sizes.reduce((sum, size) => sum + size, 0) <= PAGE_ENTRIES
}

/** Add a warning that says what was left out. */
export function withLeftOut(analysis: Analysis, { limit, actual }: SourceError): Analysis {
  const room = limit && actual ? `${bytes(actual)}, and the limit is ${bytes(limit)}` : 'too much memory'
  const message = Object.values(analysis.maps).some(({ stored }) => stored)
    ? `Only this lens was computed: all of them would need ${room}. Choose another lens above to compute that one.`
    : `Only thumbnails and numbers are available: full maps would need ${room}. Shorten the text to see full maps.`
  const warning: Warning = { code: LEFT_OUT, lens: null, message }
  return { ...analysis, warnings: [...analysis.warnings, warning] }
}

/** Whether something was left out for lack of room. */
export const isIncomplete = ({ warnings }: Analysis): boolean => warnings.some(({ code }) => code === LEFT_OUT)
