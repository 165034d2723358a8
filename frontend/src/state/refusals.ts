/** Why the source refused a request, with what the page knows of it. */
import type { Model, Request, Run } from '../lib/data/analysis'
import { SourceError } from '../lib/data/source'
import { problemSentence, tooLongSentence, unknownModelSentence } from '../lib/net/problem'

/** How many tokens models without a limit are offered of a text that is too long. */
const USUAL_TOKENS = 512

/** The source asks who the reader is. */
export const isStranger = (error: unknown): boolean => error instanceof SourceError && error.status === 401

export function failureOf({ error }: Run): SourceError {
  const problem = error ?? { title: '', detail: '', code: '', status: 500 }
  const { code, status, limit = null, actual = null } = problem
  return new SourceError(problemSentence(problem), code || 'failed', status, limit, actual)
}

/** The error of a request that names the model, or how many tokens of a text with too many bytes would be read. */
export function explainRefusal(error: unknown, { model }: Request, models: readonly Model[]): unknown {
  if (!(error instanceof SourceError)) return error
  const { code, status, limit, actual } = error
  if (code === 'unknown-model') return new SourceError(unknownModelSentence(model), code, status)
  if (code !== 'invalid-text' || !limit || !actual) return error
  const most = models.find(({ name }) => name === model)?.maxTokens ?? USUAL_TOKENS
  return new SourceError(tooLongSentence(actual, limit), 'too-many-bytes', status, limit, most)
}
