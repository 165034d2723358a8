import { mount } from 'svelte'
import App from '../src/app/App.svelte'
import Studies from '../src/app/Studies.svelte'
import { ENTRIES } from './entries'
import Gallery from './Gallery.svelte'
import { fixedSource, fixedText } from './source'
import { fixedStudies } from './studies'
import { withUsers } from './users'
import '../src/app/styles.css'

const target = document.getElementById('app')!
const wanted = new URLSearchParams(location.search).get('entry')
const entry = ENTRIES.find(({ name }) => name === wanted)

if (entry?.studies) {
  history.replaceState(null, '', `#${entry.fragment ?? ''}`)
  mount(Studies, { target, props: { source: fixedSource(), studies: fixedStudies(entry.studies) } })
} else if (entry) {
  const fragment = `text=${encodeURIComponent(fixedText(entry.tokens))}&${entry.fragment ?? ''}`
  history.replaceState(null, '', `#${fragment}`)
  const source = fixedSource(entry.delayMs)
  mount(App, { target, props: { source: entry.user === undefined ? source : withUsers(source, entry.user) } })
  const { press } = entry
  // The application listens to the window once it is mounted; some sheets need an analysis on screen.
  if (press) {
    const waiting = new MutationObserver(() => {
      if (!document.querySelector('[role=grid]')) return
      waiting.disconnect()
      window.dispatchEvent(new KeyboardEvent('keydown', { key: press }))
    })
    waiting.observe(target, { childList: true, subtree: true })
  }
} else mount(Gallery, { target })
