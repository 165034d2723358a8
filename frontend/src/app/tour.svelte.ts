/** The examples and the tour of the lenses: which one is shown, and the next. */
import { headName } from '../lib/data/analysis'
import type { Sample } from '../lib/data/source'
import { downloadImage } from '../lib/net/files'
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
  /** Images that come with the page. */
  samples: readonly Sample[]
}

export class Tour {
  readonly #parts: Parts

  readonly examples = $derived.by(() => examplesWith(this.#parts.session.catalogue?.models ?? [], this.#parts.samples))
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
    const isShown = ({ name, text, pair, sample }: Example) =>
      name === selection.tour && (sample ? vision : text === selection.text && pair === selection.pair)
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
    const { selection, requests } = this.#parts
    if (example.sample) await this.take(example.sample, chosenBy(example))
    else requests.choose({ ...chosenBy(example), ...(selection.view === 'graph' ? { view: 'both' } : {}) })
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
