import { expect, it } from 'vitest'
import { SourceError } from '../../src/lib/data/source'
import { KeyedRun } from '../../src/state/keyed-run.svelte'

const ONE = { key: 'one' }

it('computes what failed again only if asked for, and says whether the network was to blame', async () => {
  const answers = ['unreachable', 'bad-target', ''].map((code) =>
    code ? () => Promise.reject(new SourceError('No.', code, code === 'bad-target' ? 422 : 503)) : async () => 7,
  )
  const run = new KeyedRun<typeof ONE, number>(() => answers.shift()!())
  await run.ask(ONE)
  expect(run.failure(ONE)).toEqual({ key: 'one', message: 'No.', final: false, lost: true })
  await run.ask(ONE)
  expect(answers).toHaveLength(2)
  await run.ask(ONE, true)
  expect(run.failure(ONE)).toMatchObject({ final: true, lost: false })
  await run.ask(ONE, true)
  expect([run.current(ONE), run.error(ONE), run.error({ key: 'two' })]).toEqual([7, '', ''])
})

it('leaves what was cancelled until it is asked for again', async () => {
  let asked = 0
  const run = new KeyedRun<typeof ONE, number>((_wanted, _report, signal) => {
    asked += 1
    return new Promise((resolve) => signal.addEventListener('abort', () => resolve(1)))
  })
  expect(run.cancel()).toBe(false)
  const answer = run.ask(ONE)
  expect(run.cancel()).toBe(true)
  await answer
  await run.ask(ONE)
  expect([run.isRunning(ONE), run.error(ONE), run.current(ONE), asked]).toEqual([false, 'Cancelled.', undefined, 1])
  void run.ask(ONE, true)
  expect([run.isRunning(ONE), run.error(ONE), asked]).toEqual([true, '', 2])
})
