/** Follow an analysis or a study by server-sent events, with polling as the fallback. */
import type { Status } from '../lib/data/analysis'
import { getJson, PREFIX } from './http'

const POLL_MS = 500
/** The URLs of the resource and of its events. */
interface Urls {
  itself: string
  events: string
}
/** How messages are parsed, and who is called. */
interface Listener<W, R> {
  read: (wire: W) => R
  report: (run: R) => void
}
interface RunStatus {
  status: Status
}
const terminal = ({ status }: RunStatus) => status === 'done' || status === 'failed' || status === 'cancelled'

export async function watchEvents<W, R extends RunStatus>(
  places: Urls,
  listener: Listener<W, R>,
  signal: AbortSignal,
): Promise<void> {
  const finished = await stream(places.events, listener, signal)
  if (!finished && !signal.aborted) await poll(places.itself, listener, signal)
}

/** Returns false if the stream fails before a terminal status. EventSource itself reconnects after short failures. */
function stream<W, R extends RunStatus>(
  place: string,
  { read, report }: Listener<W, R>,
  signal: AbortSignal,
): Promise<boolean> {
  return new Promise((resolve) => {
    const events = new EventSource(PREFIX + place)
    const end = (finished: boolean) => {
      events.close()
      resolve(finished)
    }
    let failures = 0
    events.addEventListener('progress', (event) => {
      failures = 0
      const run = read(JSON.parse((event as MessageEvent<string>).data) as W)
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

async function poll<W, R extends RunStatus>(
  place: string,
  { read, report }: Listener<W, R>,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const run = read(await getJson<W>(place, signal))
    report(run)
    if (terminal(run)) return
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    if (signal.aborted) return
  }
}
