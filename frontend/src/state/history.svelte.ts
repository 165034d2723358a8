/** What this reader has had analysed, as the source lists it: looked up when the list is opened. */
import { type HistoryItem, type Source, SourceError } from '../lib/data/source'

export class History {
  open = $state(false)
  error = $state('')
  /** Undefined until the first answer; kept while a newer one is on its way. */
  items = $state.raw<HistoryItem[]>()

  constructor(readonly source: Source) {}

  async show(): Promise<void> {
    this.open = true
    this.error = ''
    try {
      this.items = await this.source.recent()
    } catch (error) {
      this.error = error instanceof SourceError ? error.message : 'The list could not be read. Close it and try again.'
    }
  }
}
