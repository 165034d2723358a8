/** Responses and changes of the view, in messages between this page and the notebook's widget that holds its frame. */
import { decodeFragment } from '../lib/net/fragment'
import type { Responses } from './file'

/** Fields of the address that the widget has too, with their initial texts. */
const VIEW = { head: '', lens: 'weights', pins: '', range: 'head' }
type View = typeof VIEW

interface Message {
  id?: number
  bytes?: ArrayBuffer
  view?: View
}

function listen(host: Window, handle: (message: Message) => void): void {
  addEventListener('message', ({ source, data }) => {
    if (source === host) handle(data as Message)
  })
}

/** What a host answers; the rest is part of the page, or does not exist. */
const ANSWERED = /^\/(grid|measures|factors)\//

export function askHost(host: Window): Responses {
  const waiting = new Map<number, (bytes?: ArrayBuffer) => void>()
  let last = 0
  listen(host, ({ id = 0, bytes }) => {
    waiting.get(id)?.(bytes)
    waiting.delete(id)
  })
  return async (path) => {
    if (!ANSWERED.test(path)) return undefined
    return new Promise((resolve) => {
      last += 1
      waiting.set(last, resolve)
      host.postMessage({ id: last, path }, '*')
    })
  }
}

/** Tell the widget what is chosen here; `show` gets the fragment of what is chosen there. */
export function followHost(host: Window, show: (fragment: string) => void): void {
  const now = () => decodeFragment(location.hash, VIEW) as View
  const same = (view: View) => JSON.stringify(view) === JSON.stringify(now())
  let told = now()
  const tell = () => {
    if (same(told)) return
    told = now()
    host.postMessage({ view: told }, '*')
  }
  addEventListener('fragment', tell)
  addEventListener('popstate', tell)
  listen(host, ({ view }) => {
    if (!view) return
    told = decodeFragment(new URLSearchParams(view).toString(), VIEW) as View
    if (same(told)) return
    const fields = new URLSearchParams(location.hash.slice(1))
    for (const [name, text] of Object.entries(told)) fields.set(name, text)
    show(fields.toString())
  })
}
