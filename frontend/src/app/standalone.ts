import { mount } from 'svelte'
import { readAnswers } from '../api/answers'
import { fileSource } from '../api/file'
import { decodeFragment, writeFragment } from '../lib/net/fragment'
import App from './App.svelte'
import './styles.css'

const source = fileSource(readAnswers(document))
const { id } = await source.analysis('', new AbortController().signal)
const target = document.getElementById('app')!

/** In a notebook the address of the frame has no fragment: the document itself holds what to show first. */
const asked = location.hash.slice(1) || target.dataset.fragment || ''
const here = decodeFragment(asked, { analysis: '' }).analysis === id
// What the page holds is seen as whoever has the key to one analysis sees it.
const fragment = here ? asked : `analysis=${id}&share=page${asked && `&${asked}`}`
writeFragment('replaceState', null, fragment)
mount(App, { target, props: { source, fragment } })
