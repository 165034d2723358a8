import { mount } from 'svelte'
import { server } from '../api/server'
import App from './App.svelte'
import './styles.css'

mount(App, { target: document.getElementById('app')!, props: { source: server } })
