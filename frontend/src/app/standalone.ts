import { mount } from 'svelte'
import { fileSource } from '../api/file'
import { askHost, followHost } from '../api/host'
import { readResponses } from '../api/responses'
import { decodeFragment, writeFragment } from '../lib/net/fragment'
import App from './App.svelte'
import './styles.css'

/** In the frame of a notebook's widget, the page asks for the maps that it shows, and for what else it does not contain. */
const hosted = document.querySelector('[data-host]') !== null
const source = fileSource(readResponses(document, hosted ? askHost(parent) : undefined))
const { id } = await source.analysis('', new AbortController().signal)
const target = document.getElementById('app')!

/** In a notebook the frame's address has no fragment, so the document itself contains the initial one. */
const asked = location.hash.slice(1) || target.dataset.fragment || ''
const { theme } = decodeFragment(asked, { theme: '' })
if (theme) document.documentElement.dataset.preferredTheme = theme
const here = decodeFragment(asked, { analysis: '' }).analysis === id
// An exported page is read-only, like one opened with a share key.
const fragment = here ? asked : `analysis=${id}&share=page${asked && `&${asked}`}`
writeFragment('replaceState', null, fragment)
mount(App, { target, props: { source, fragment } })
if (hosted) {
  followHost(parent, (fragment) => {
    writeFragment('pushState', history.state, fragment)
    dispatchEvent(new PopStateEvent('popstate', { state: history.state }))
  })
}
