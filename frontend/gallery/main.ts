import { mount, unmount } from 'svelte'
import App from '../src/app/App.svelte'
import Studies from '../src/app/Studies.svelte'
import { fixedBatteries } from './batteries'
import { fixedEffects } from './effects'
import { ENTRIES } from './entries'
import Gallery from './Gallery.svelte'
import { fixedSource, fixedText } from './source'
import { fixedStudies } from './studies'
import { withUsers } from './users'
import '../src/app/styles.css'

const target = document.getElementById('app')!
let shown: Record<string, unknown> | undefined

/** Draw an entry in place of the one on screen, as if its address had been opened. */
async function show(name: string | null): Promise<void> {
  if (shown) await unmount(shown)
  localStorage.clear()
  performance.clearMarks()
  shown = draw(ENTRIES.find((entry) => entry.name === name))
}

function draw(entry: (typeof ENTRIES)[number] | undefined): Record<string, unknown> {
  if (!entry) return mount(Gallery, { target })
  if (entry.studies) {
    history.replaceState(null, '', `#${entry.fragment ?? ''}`)
    return mount(Studies, { target, props: { source: fixedSource(), studies: fixedStudies(entry.studies) } })
  }
  const fragment = `text=${encodeURIComponent(fixedText(entry.tokens))}&${entry.fragment ?? ''}`
  history.replaceState(null, '', `#${fragment}`)
  const source = {
    ...fixedSource(entry.delayMs),
    ...(entry.effects ? { effects: fixedEffects } : {}),
    ...(entry.batteries ? { batteries: fixedBatteries } : {}),
  }
  const { press, user } = entry
  const app = mount(App, { target, props: { source: user === undefined ? source : withUsers(source, user) } })
  // The application listens to the window once it is mounted; some sheets need an analysis on screen.
  if (press) {
    const waiting = new MutationObserver(() => {
      if (!document.querySelector('[role=grid]')) return
      waiting.disconnect()
      window.dispatchEvent(new KeyboardEvent('keydown', { key: press }))
    })
    waiting.observe(target, { childList: true, subtree: true })
  }
  return app
}

// The tests walk through all entries without loading the scripts again.
Object.assign(window, { show })
void show(new URLSearchParams(location.search).get('entry'))
