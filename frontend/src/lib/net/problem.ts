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
  unreachable: () => `The server cannot be reached. ${KEPT}; try again in a moment.`,
  'too-many-tokens': ({ actual, limit, title }) =>
    actual && limit
      ? `The text has ${actual} tokens and this model takes ${limit}. ${KEPT}: shorten it, or choose a model that takes more.`
      : `${title}. ${KEPT}: shorten it.`,
  'attention-budget-exceeded': ({ actual, limit }) => {
    const sizes = actual && limit ? `, ${bytes(actual)} where ${bytes(limit)} are allowed` : ''
    return `The maps of this text would need too much memory${sizes}. ${KEPT}: shorten it, or choose a smaller model.`
  },
  'unknown-model': () => `There is no model of that name here. ${KEPT}: choose a model in the list above.`,
  'unknown-mechanism': () => `There is no mechanism of that name here. ${KEPT}: choose one in the list above.`,
  unauthorized: () => 'Sign in first: your access token is not taken any more.',
  'queue-full': () => `Too many analyses are waiting. ${KEPT}; press Analyse again in a minute.`,
  'storage-full': () => `There is no room on the server for the result. ${KEPT}; a shorter one may fit.`,
  'timed-out': () => `The analysis took too long and was stopped. ${KEPT}: shorten it and press Analyse again.`,
  'worker-lost': () =>
    `The worker stopped several times on this text, probably for want of memory. ${KEPT}: shorten it and press Analyse again.`,
  'model-unavailable': () =>
    `The model is not on this machine and could not be fetched. ${KEPT}: choose another model.`,
}

export function problemSentence(problem: Problem): string {
  const said = SENTENCES[problem.code]
  if (said) return said(problem)
  return problem.detail || (problem.title ? `${problem.title}.` : `The analysis failed. ${KEPT}; try again.`)
}

/** Messages for problems of a study, which has no single text. */
export function studyProblemSentence(problem: Problem): string {
  if (problem.code === 'unauthorized') return SENTENCES.unauthorized(problem)
  const said = problem.detail || `${problem.title || 'The study failed'}.`
  return said.replace('set max_tokens to cut it', 'start another study that cuts inputs to so many tokens')
}
