/** Files that are dropped anywhere on the page, pasted, or chosen. */
import { readFile } from '../lib/net/files'
import type { Chosen } from '../state/chosen.svelte'
import type { Session } from '../state/session.svelte'
import type { Drawn } from './drawn.svelte'
import type { Requests } from './requests.svelte'

const BLIND =
  'This image needs a model that reads images, and this server has none. The documentation explains how to add one.'

interface Parts {
  chosen: Chosen
  drawn: Drawn
  requests: Requests
  session: Session
}

export function handleFiles({ chosen, drawn, requests, session }: Parts) {
  async function take(file: File): Promise<void> {
    try {
      const found = await readFile(file)
      if ('text' in found) requests.choose({ text: found.text, pair: '', chat: '', ids: '', targets: '' })
      else see(found.image)
    } catch (error) {
      session.say(error instanceof Error ? error.message : String(error))
    }
  }

  /** An image needs a model that reads it: the chosen one, or the first vision model on the server, or one of the hub. */
  function see(image: string): void {
    const models = (session.catalogue?.models ?? []).filter(({ available }) => available)
    const able = models.filter(({ name, kind, images }) => kind === 'vision' || (images && name === chosen.model))
    const seeing = able.find(({ name }) => name === chosen.model) ?? able.find(({ local }) => local) ?? able[0]
    if (!seeing) {
      session.say(BLIND)
      return
    }
    drawn.upload = image
    requests.choose({ tour: '', ...(seeing.name === chosen.model ? {} : { model: seeing.name, kind: '' }) })
  }

  const took = (event: Event, data: DataTransfer | null): void => {
    const file = data?.files[0]
    if (!file) return
    event.preventDefault()
    void take(file)
  }
  return {
    take: (file: File) => void take(file),

    ondragover(event: DragEvent): void {
      // Otherwise the browser leaves the page to show the file.
      if (event.dataTransfer?.types.includes('Files')) event.preventDefault()
    },
    ondrop: (event: DragEvent) => took(event, event.dataTransfer),
    onpaste(event: ClipboardEvent): void {
      // Spreadsheet cells are pasted as text and as a picture of it; the text is used.
      if (!event.clipboardData?.types.includes('text/plain')) took(event, event.clipboardData)
    },
  }
}
