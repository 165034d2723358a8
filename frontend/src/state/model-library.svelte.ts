/** The models that a reader chooses from, and their downloads. */
import type { KindSupport, Model } from '../lib/data/analysis'
import type { Download, Library } from '../lib/data/models'
import { errorSentence, type Source } from '../lib/data/source'

const POLL_MS = 500

/** What a model is chosen for. */
interface ModelRequest {
  title: string
  current: string
  /** Why a model cannot be chosen here, null if it can. */
  reason?: (model: Model) => string | null
  onchoose: (name: string) => void
}

export class ModelLibrary {
  /** What the sheet is open for. */
  request = $state.raw<ModelRequest>()
  /** By name of the model. */
  downloads = $state.raw<Record<string, Download>>({})
  /** Why the last request failed, by name of the model. */
  errors = $state.raw<Record<string, string>>({})
  support = $state.raw<Record<string, readonly KindSupport[]>>({})

  readonly #source: Source
  readonly #changed: (model: string) => void

  /** `changed` is called after a model was added or removed. */
  constructor(source: Source, changed: (model: string) => void) {
    this.#source = source
    this.#changed = changed
  }

  get library(): Library | undefined {
    return this.#source.library
  }

  open = (request: ModelRequest): void => {
    this.request = request
  }

  close = (): void => {
    this.request = undefined
  }

  /** Look up what a model supports, and whether it is being downloaded. */
  async learn({ name, local }: Model): Promise<void> {
    if (!this.support[name]) {
      const known = await this.#source.support(name).catch(() => undefined)
      if (known) this.support = { ...this.support, [name]: known }
    }
    if (local || !this.library || name in this.downloads) return
    const download = await this.library.download(name).catch(() => undefined)
    if (download) await this.#follow(name, download)
  }

  async add(name: string): Promise<void> {
    await this.#try(name, async (library) => {
      const download = await library.add(name)
      if (download) await this.#follow(name, download)
      else this.#settle(name)
    })
  }

  /** Cancel a download, dismiss its failure, or remove the model. */
  async remove(name: string): Promise<void> {
    await this.#try(name, async (library) => {
      const loading = name in this.downloads
      this.#forget(name)
      await library.remove(name)
      if (!loading) this.#settle(name)
    })
  }

  async #try(name: string, change: (library: Library) => Promise<void>): Promise<void> {
    if (!this.library) return
    this.errors = { ...this.errors, [name]: '' }
    try {
      await change(this.library)
    } catch (error) {
      this.errors = { ...this.errors, [name]: errorSentence(error, 'Try again.') }
      this.#forget(name)
    }
  }

  /** Report a download until it has ended. */
  async #follow(name: string, first: Download): Promise<void> {
    const { library } = this
    for (let download: Download | undefined = first; ; ) {
      if (!download) break
      this.downloads = { ...this.downloads, [name]: download }
      if (download.error) return
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
      if (!(name in this.downloads)) return
      download = await library?.download(name)
    }
    this.#forget(name)
    this.#settle(name)
  }

  #forget(name: string): void {
    const { [name]: _, ...rest } = this.downloads
    this.downloads = rest
  }

  #settle(name: string): void {
    const { [name]: _, ...rest } = this.support
    this.support = rest
    this.#changed(name)
  }
}
