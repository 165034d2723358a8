import { mount } from 'svelte'
import { answersOf } from '../api/answers'
import { fileSource } from '../api/file'
import App from './App.svelte'
import './styles.css'

mount(App, { target: document.getElementById('app')!, props: { source: fileSource(answersOf(document)) } })
