/** Adding and removing models over REST. */
import type { Download, Library } from '../lib/data/models'
import type { Problem } from '../lib/net/problem'
import { call, getJson, path } from './http'
import type { WireSupport } from './wire'

/** The server's own sentence: those of the page are about a text. */
const say = ({ detail, title }: Problem) => detail || title
const at = (model: string) => path(['models', ...model.split('/')])

function read({ download }: WireSupport): Download | undefined {
  if (!download) return undefined
  const { fraction, detail, error } = download
  return { fraction, detail, error: error ? say(error) : '' }
}

export const library: Library = {
  async add(model) {
    const headers = { 'content-type': 'application/json', accept: 'application/json' }
    const answer = await call('/models', { method: 'POST', headers, body: JSON.stringify({ model }) }, say)
    return read((await answer.json()) as WireSupport)
  },

  async download(model) {
    return read(await getJson<WireSupport>(at(model), undefined, say))
  },

  async remove(model) {
    await call(at(model), { method: 'DELETE' }, say)
  },
}
