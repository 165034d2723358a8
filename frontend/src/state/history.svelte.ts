/** The reader's history of analyses, looked up when the list is opened. */
import { type HistoryItem, type Source, SourceError } from '../lib/data/source'

export class History {
  open = $state(false)
  error = $state('')
  /** Undefined until the first answer; kept while it is refreshed. */
  items = $state.raw<HistoryItem[]>()

  constructor(readonly source: Source) {}

  async show(): Promise<void> {
    this.open = true
    this.error = ''
    try {
      this.items = await this.source.recent()
    } catch (error) {
      this.error =
        error instanceof SourceError ? error.message : 'The history could not be loaded. Close it and try again.'
    }
  }
}
