import { expect, it } from 'vitest'
import { fixedStudies } from '../../gallery/studies'
import type { Dataset } from '../../src/lib/data/studies'
import { Draft } from '../../src/state/study/draft.svelte'
import { StudySelection } from '../../src/state/study/selection.svelte'

const SUPPORT = { kind: 'self', lenses: {}, mechanisms: {}, measures: {}, effects: {} }

it('looks up what a model supports beside what else it does, whose words stay', async () => {
  const studies = fixedStudies('some')
  let read = (_: Dataset) => {}
  let refuse = (_: Error) => {}
  const dataset = () =>
    new Promise<Dataset>((resolve, reject) => {
      ;[read, refuse] = [resolve, reject]
    })
  const selection = new StudySelection('#study=new&draft={"dataset":"words.tsv"}')
  const draft = new Draft({ ...studies, dataset }, selection, async () => [SUPPORT], String)
  const learned = draft.learn()
  await draft.ask('minilm')
  expect([draft.support, draft.busy]).toEqual([SUPPORT, 'Reading the data set \u2026'])
  read(await studies.dataset('words.tsv', { format: '', columns: {} }, new AbortController().signal))
  await learned
  expect([draft.busy, draft.dataset?.name]).toEqual(['', 'reviews/dev.tsv'])
  const looked = draft.look()
  refuse(new Error('No columns.'))
  await looked
  await draft.ask('gpt2')
  expect(draft.error).toBe('Error: No columns.')
})

it('shows no data set that is not chosen any longer', async () => {
  const studies = fixedStudies('some')
  const selection = new StudySelection('#study=new&draft={"dataset":"words.tsv"}')
  const draft = new Draft(studies, selection, async () => [SUPPORT], String)
  await draft.learn()
  expect(draft.dataset?.name).toBe('reviews/dev.tsv')
  selection.read('#study=new')
  await draft.learn()
  expect(draft.dataset).toBeUndefined()
})
