import { mount } from 'svelte'
import { answersOf } from '../api/answers'
import { fileSource } from '../api/file'
import { decodeFragment } from '../lib/fragment'
import App from './App.svelte'
import './styles.css'

const source = fileSource(answersOf(document))
const { id } = await source.analysis('', new AbortController().signal)

// What the page holds is seen as whoever has the key to one analysis sees it.
if (decodeFragment(location.hash, { analysis: '' }).analysis !== id) {
  history.replaceState(null, '', `#analysis=${id}&share=page${location.hash.replace('#', '&')}`)
}
mount(App, { target: document.getElementById('app')!, props: { source } })
