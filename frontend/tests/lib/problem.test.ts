import { describe, expect, it } from 'vitest'
import { problemSentence, studyProblemSentence } from '../../src/lib/net/problem'

const problem = { title: 'Not supported', detail: '', status: 422, code: 'unsupported' }

describe('problemSentence', () => {
  it('says with numbers what a person can do here', () => {
    const detail = 'The text has 602 tokens and the model takes 512. Shorten it, or set max_tokens to cut it.'
    const said = problemSentence({ ...problem, detail, code: 'too-many-tokens', limit: 512, actual: 602 })
    expect(said).toContain('602 tokens; this model accepts 512')
    expect(said).not.toContain('max_tokens')
  })

  it('writes memory in units people read', () => {
    const said = problemSentence({ ...problem, code: 'attention-budget-exceeded', limit: 2 ** 32, actual: 5 * 2 ** 31 })
    expect(said).toContain('10\u00a0GiB; the limit is 4.0\u00a0GiB')
  })

  it('keeps the sentence of the server where the page knows none, and never says nothing', () => {
    expect(problemSentence({ ...problem, detail: 'This can not be.' })).toBe('This can not be.')
    expect(problemSentence(problem)).toBe('Not supported.')
    expect(problemSentence({ ...problem, title: '' })).toContain('Try again')
  })

  it('names the next step if a result or data set was deleted, on both pages', () => {
    const gone = { ...problem, detail: 'Send the request again.', status: 404 }
    expect(problemSentence({ ...gone, code: 'unknown-analysis' })).toContain('Press Analyse')
    expect(studyProblemSentence({ ...gone, code: 'unknown-study' })).toContain('no longer has this study')
    expect(
      studyProblemSentence({ ...gone, code: 'unknown-dataset', detail: 'GET /api/v1/datasets lists them.' }),
    ).toContain('Upload its file again')
    const detail = 'Data sets of the hub are not allowed here.'
    expect(studyProblemSentence({ ...gone, code: 'unknown-dataset', detail })).toBe(detail)
  })
})
