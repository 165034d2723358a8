/** The numbers that a reader has starred, in this browser. */
import { FAVOURITES } from '../lib/data/measures'
import { recall, remember } from '../lib/net/storage'

const KEY = 'measures'

function stored(): string[] {
  try {
    const names: unknown = JSON.parse(recall(KEY) ?? 'null')
    if (Array.isArray(names)) return names.filter((name) => typeof name === 'string')
  } catch {
    // Another version of the page may have written something else.
  }
  return FAVOURITES
}

export class Favourites {
  names = $state.raw<readonly string[]>(stored())

  has = (name: string): boolean => this.names.includes(name)

  toggle(name: string): void {
    this.names = this.has(name) ? this.names.filter((other) => other !== name) : [...this.names, name]
    remember(KEY, JSON.stringify(this.names))
  }
}
