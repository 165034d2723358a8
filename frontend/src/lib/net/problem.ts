/** Messages for problems. The server's sentences serve every client; these name what the page offers. */
import { bytes } from '../text/format'

export interface Problem {
  title: string
  status: number
  detail: string
  code: string
  limit?: number | null
  actual?: number | null
}

type MessageOf = (problem: Problem) => string
const KEPT = 'Your text is kept'

const SENTENCES: Record<string, MessageOf> = {
  unreachable: () => `The server cannot be reached. ${KEPT}. Try again in a moment.`,
  'too-many-tokens': ({ actual, limit, title }) =>
    actual && limit
      ? `The text has ${actual} tokens; this model accepts ${limit}. ${KEPT}. Shorten it, or choose a model that accepts more.`
      : `${title}. ${KEPT}. Shorten it.`,
  'attention-budget-exceeded': ({ actual, limit }) => {
    const sizes = actual && limit ? ` (${bytes(actual)}; the limit is ${bytes(limit)})` : ''
    return `The maps of this text need too much memory${sizes}. ${KEPT}. Shorten it, or choose a smaller model.`
  },
  'unknown-model': () => `This server has no model of that name. ${KEPT}. Choose a model from the list above.`,
  'unknown-mechanism': () => `This server has no mechanism of that name. ${KEPT}. Choose one from the list above.`,
  unauthorized: () => 'Your access token is no longer valid. Sign in again.',
  'queue-full': () => `Too many analyses are waiting. ${KEPT}. Press Analyse again in a minute.`,
  'storage-full': () => `The server has no space left for the result. ${KEPT}. A shorter one may fit.`,
  'timed-out': () => `The analysis took too long and was stopped. ${KEPT}. Shorten it and press Analyse again.`,
  'worker-lost': () =>
    `The worker stopped several times on this text, probably because memory ran out. ${KEPT}. Shorten it and press Analyse again.`,
  'model-unavailable': () =>
    `The model is not on the server and could not be downloaded. ${KEPT}. Choose another model.`,
}

/** Messages of both pages for results and data that were deleted, or whose link was revoked. */
const GONE: Record<string, string> = {
  'unknown-analysis':
    'The server no longer has this analysis, or its link was revoked. Press Analyse to compute a text again.',
  'unknown-study': 'The server no longer has this study, or its link was revoked.',
  'unknown-dataset': 'The server no longer has this data set. Upload its file again.',
}

/** Whether the server's sentence is about requests, which the page replaces; a data set may be refused for another reason. */
const isGone = ({ code, detail }: Problem) =>
  code in GONE && (code !== 'unknown-dataset' || !detail || detail.includes('/api/'))

export const unknownModelSentence = (model: string): string =>
  `This server has no model named \u201c${model}\u201d. ${KEPT}. Choose a model from the list above.`

/** A sentence about a model of images. */
export const aboutImages = (sentence: string): string => sentence.replace(KEPT, 'Your input is kept')

const kib = (count: number) => `${Math.ceil(count / 1024).toLocaleString('en')}\u00a0KiB`

/** `actual` and `limit` in bytes. */
export const tooLongSentence = (actual: number, limit: number): string =>
  `The text has ${kib(actual)}; this server accepts ${kib(limit)}. ${KEPT}. Shorten it, or analyse its beginning.`

export function problemSentence(problem: Problem): string {
  const said = SENTENCES[problem.code]
  if (said) return said(problem)
  if (isGone(problem)) return GONE[problem.code]
  return problem.detail || (problem.title ? `${problem.title}.` : `The analysis failed. ${KEPT}. Try again.`)
}

/** Messages for problems of a study, which has no single text. */
export function studyProblemSentence(problem: Problem): string {
  if (problem.code === 'unauthorized') return SENTENCES.unauthorized(problem)
  if (isGone(problem)) return GONE[problem.code]
  const said = problem.detail || `${problem.title || 'The study failed'}.`
  return said.replace('set max_tokens to cut it', 'start another study with a limit on tokens per input')
}
