/** Follows an analysis by server-sent events; where they fail, asks again and again instead. */
import type { Run } from '../lib/analysis'
import { getJson, PREFIX } from './http'
import { readRun, type WireRun } from './wire'

type Report = (run: Run) => void
const POLL_MS = 500
/** The addresses of one analysis and of its events. */
export interface Places {
  itself: string
  events: string
}
const terminal = ({ status }: Run) => status === 'done' || status === 'failed' || status === 'cancelled'

export async function watchEvents(places: Places, report: Report, signal: AbortSignal): Promise<void> {
  const finished = await stream(places.events, report, signal)
  if (!finished && !signal.aborted) await poll(places.itself, report, signal)
}

/** Answers false where the stream broke for good before a terminal status. EventSource itself resumes short breaks. */
function stream(place: string, report: Report, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const events = new EventSource(PREFIX + place)
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

async function poll(place: string, report: Report, signal: AbortSignal): Promise<void> {
  for (;;) {
    const run = readRun(await getJson<WireRun>(place, signal))
    report(run)
    if (terminal(run)) return
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    if (signal.aborted) return
  }
}
