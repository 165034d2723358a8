/** Follows an analysis by server-sent events; where they fail, asks again and again instead. */
import type { Run } from '../lib/analysis'
import { getJson, PREFIX, path } from './http'
import { readRun, type WireRun } from './wire'

type Report = (run: Run) => void
const POLL_MS = 500
const terminal = ({ status }: Run) => status === 'done' || status === 'failed' || status === 'cancelled'

export async function watchEvents(id: string, report: Report, signal: AbortSignal): Promise<void> {
  const finished = await stream(id, report, signal)
  if (!finished && !signal.aborted) await poll(id, report, signal)
}

/** Answers false where the stream broke for good before a terminal status. EventSource itself resumes short breaks. */
function stream(id: string, report: Report, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const events = new EventSource(PREFIX + path(['analyses', id, 'events']))
    const end = (finished: boolean) => {
      events.close()
      resolve(finished)
    }
    let failures = 0
    events.addEventListener('progress', (event) => {
      failures = 0
      const run = readRun(JSON.parse((event as MessageEvent<string>).data) as WireRun)
      report(run)
      if (terminal(run)) end(true)
    })
    events.addEventListener('error', () => {
      failures += 1
      if (events.readyState === EventSource.CLOSED || failures > 2) end(false)
    })
    signal.addEventListener('abort', () => end(false), { once: true })
  })
}

async function poll(id: string, report: Report, signal: AbortSignal): Promise<void> {
  for (;;) {
    const run = readRun(await getJson<WireRun>(path(['analyses', id]), signal))
    report(run)
    if (terminal(run)) return
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    if (signal.aborted) return
  }
}
