import { expect, it, vi } from 'vitest'
import { computeSingle } from '../../src/api/single'
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

it('computes what was given up a moment ago as a job of its own, once the former is cancelled', async () => {
  const log: string[] = []
  const statuses: Record<string, string> = {}
  let answer = () => {}
  const answered = new Promise<void>((resolve) => (answer = resolve))
  vi.stubGlobal('fetch', async (url: string, { method = 'GET', body = '' }: { method?: string; body?: string }) => {
    const id: string = method === 'POST' ? JSON.parse(body).key : url.split('/').at(-1)
    log.push(`${method} ${id}`)
    if (method === 'POST') statuses[id] = 'running'
    if (method === 'DELETE') await answered.then(() => (statuses[id] = 'cancelled'))
    const done = method === 'GET' && log.filter((one) => one === `POST ${id}`).length > 1
    if (done && statuses[id] === 'running') statuses[id] = 'done'
    const [status, result] = [statuses[id], statuses[id] === 'done' ? { id } : null]
    return new Response(JSON.stringify({ id, status, progress: { fraction: 0 }, error: null, result }))
  })
  type Wanted = { key: string }
  const run = new KeyedRun<Wanted, object>((wanted, report, signal) =>
    computeSingle((parts) => ['/effects', ...parts].join('/'), wanted, report, signal),
  )
  const [a, b] = [{ key: 'a' }, { key: 'b' }]
  void run.ask(a)
  await vi.waitFor(() => expect(statuses.a).toBe('running'))
  void run.ask(b)
  void run.ask(a)
  await vi.waitFor(() => expect(log).toContain('DELETE a'))
  expect(log.filter((one) => one === 'POST a')).toHaveLength(1)
  answer()
  await vi.waitFor(() => expect(log.filter((one) => one === 'POST a')).toHaveLength(2))
  expect(run.isRunning(a)).toBe(true)
  await vi.waitFor(() => expect(run.current(a)).toBeDefined())
  expect(run.error(a)).toBe('')
  vi.unstubAllGlobals()
})
