/** Light or dark: what the document prefers, or the system, until the reader chooses. */
import { type Palette, readPalette } from '../lib/drawing/palette'
import { recall, remember } from '../lib/net/storage'

type ThemeChoice = 'system' | 'light' | 'dark'
const KEY = 'theme'

function stored(): ThemeChoice {
  const value = recall(KEY) || document.documentElement.dataset.preferredTheme
  return value === 'light' || value === 'dark' ? value : 'system'
}

export class Theme {
  choice = $state<ThemeChoice>(stored())
  palette = $state.raw<Palette>()!
  #system = matchMedia('(prefers-color-scheme: dark)')

  constructor() {
    this.#apply()
    this.#system.addEventListener('change', () => this.#apply())
  }

  get dark(): boolean {
    return this.choice === 'dark' || (this.choice === 'system' && this.#system.matches)
  }

  toggle(): void {
    this.choice = this.dark ? 'light' : 'dark'
    remember(KEY, this.choice)
    this.#apply()
  }

  #apply(): void {
    const root = document.documentElement
    root.dataset.theme = this.dark ? 'dark' : 'light'
    this.palette = readPalette(root)
  }
}
