import { mount } from 'svelte'
import { server } from '../api/server'
import { decodeFragment } from '../lib/fragment'
import App from './App.svelte'
import './styles.css'

const { share } = decodeFragment(location.hash, { share: '' })
mount(App, { target: document.getElementById('app')!, props: { source: server(share) } })
