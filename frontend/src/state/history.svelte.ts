/** The reader's history of analyses, looked up when the list is opened. */
import { type HistoryItem, type Source, SourceError } from '../lib/data/source'

/** Each text once per model and settings: the latest entry, or the one on screen. Images and token ids cannot be told apart by their text. */
export function distinctItems(items: readonly HistoryItem[], current: string | undefined): HistoryItem[] {
  const found = new Map<string, HistoryItem>()
  for (const item of items) {
    const key = item.text === '' ? item.id : JSON.stringify([item.text, item.textPair, item.model, item.settings])
    if (!found.has(key) || item.id === current) found.set(key, item)
  }
  return [...found.values()]
}

export class History {
  open = $state(false)
  error = $state('')
  /** Undefined until the first answer; kept while it is refreshed. */
  items = $state.raw<HistoryItem[]>()
  /** The cursor of the next page; null if all are loaded. */
  next = $state.raw<string | null>(null)
  /** A page is being loaded. */
  busy = $state(false)

  constructor(readonly source: Source) {}

  async show(): Promise<void> {
    this.open = true
    await this.#load()
  }

  /** Load the next page. */
  async more(): Promise<void> {
    if (!this.busy && this.next !== null) await this.#load(this.next)
  }

  async #load(from?: string): Promise<void> {
    this.error = ''
    this.busy = true
    try {
      const { items, next } = await this.source.recent(from)
      this.items = from === undefined ? items : [...(this.items ?? []), ...items]
      this.next = next
    } catch (error) {
      this.error =
        error instanceof SourceError ? error.message : 'The history could not be loaded. Close it and try again.'
    }
    this.busy = false
  }
}
