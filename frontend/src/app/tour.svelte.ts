/** The examples and the tour of the lenses: which one is shown, and the next. */
import { headName } from '../lib/data/analysis'
import type { Sample } from '../lib/data/source'
import { downloadImage, downloadText } from '../lib/net/files'
import { chosenBy, type Example, examplesWith } from '../lib/text/examples'
import { lessonsOn } from '../lib/text/lessons'
import type { Chosen } from '../state/chosen.svelte'
import type { Selection } from '../state/selection.svelte'
import type { Session } from '../state/session.svelte'
import type { Drawn } from './drawn.svelte'
import type { Requests } from './requests.svelte'

interface Parts {
  selection: Selection
  chosen: Chosen
  drawn: Drawn
  session: Session
  requests: Requests
  /** Images and long texts that come with the page. */
  samples: readonly Sample[]
  texts: readonly Sample[]
}

export class Tour {
  readonly #parts: Parts

  readonly examples = $derived.by(() =>
    examplesWith(this.#parts.session.catalogue?.models ?? [], [...this.#parts.samples, ...this.#parts.texts]),
  )
  readonly lessons = $derived.by(() => {
    const { session, chosen } = this.#parts
    return lessonsOn(session.catalogue?.lenses ?? [], session.support[chosen.defaultModel]?.[0]?.lenses ?? {})
  })
  /** The example that the address names, among its neighbours, while its text is selected. */
  readonly step = $derived.by(() => {
    const { selection, chosen } = this.#parts
    const touring = this.lessons.some(({ name }) => name === selection.tour)
    const steps: readonly Example[] = touring ? this.lessons : this.examples
    const vision = chosen.card?.kind === 'vision'
    const isRead = ({ text, pair, document }: Example) =>
      pair === selection.pair && (document ? selection.text.startsWith(text) : text === selection.text)
    const isShown = (example: Example) => example.name === selection.tour && (example.sample ? vision : isRead(example))
    const at = steps.findIndex(isShown)
    if (at < 0) return undefined
    const { head, show = {} } = steps[at]
    const open = selection.head && selection.heads.length === 0 ? headName(selection.head) : ''
    const intact = open === head && chosen.lens === (show.lens ?? 'weights')
    return { title: touring ? 'Tour of the lenses' : 'Examples', steps, at, intact }
  })

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** Examples speak of maps, which a view of graphs only would hide. */
  async show(example: Example): Promise<void> {
    const { selection, requests, session } = this.#parts
    const view = selection.view === 'graph' ? { view: 'both' } : {}
    if (example.sample) return this.take(example.sample, chosenBy(example))
    try {
      const text = example.document ? await this.#read(example.document) : example.text
      requests.choose({ ...view, ...chosenBy({ ...example, text }) })
    } catch {
      session.say('The text could not be loaded from the server. Try again.')
    }
  }

  #read(name: string): Promise<string> {
    return downloadText(this.#parts.texts.find((text) => text.name === name)?.url ?? '')
  }

  /** Analyse an image that comes with the page. */
  async take(name: string, patch: Record<string, string> = { tour: '' }): Promise<void> {
    const { requests, drawn, session, samples } = this.#parts
    const url = samples.find((sample) => sample.name === name)?.url ?? ''
    try {
      drawn.upload = await downloadImage(url)
    } catch {
      session.say('The image could not be loaded from the server. Try again.')
      return
    }
    requests.choose(patch)
  }

  close = (): void => this.#parts.selection.set({ tour: '' })
}
