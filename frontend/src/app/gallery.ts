import { mount } from 'svelte'
import { fixedSource } from '../api/fixed'
import App from './App.svelte'
import './styles.css'

mount(App, { target: document.getElementById('app')!, props: { source: fixedSource() } })
