import { mount } from 'svelte'
import { arriveFromProvider } from '../api/provider'
import { server } from '../api/server'
import { decodeFragment } from '../lib/net/fragment'
import App from './App.svelte'
import { SAMPLES } from './samples'
import './styles.css'
import { TEXTS } from './texts'

const target = document.getElementById('app')!

const refusal = await arriveFromProvider()
const found = server(decodeFragment(location.hash, { share: '' }).share)
const source = { ...found, accounts: { ...found.accounts!, refusal }, samples: SAMPLES, texts: TEXTS }

/** The page of studies is a chunk of its own, loaded on demand. */
async function studies(): Promise<void> {
  const { default: Studies } = await import('./Studies.svelte')
  mount(Studies, { target, props: { source, studies: source.studies! } })
}

if (new URLSearchParams(location.search).has('studies')) void studies()
else mount(App, { target, props: { source } })
