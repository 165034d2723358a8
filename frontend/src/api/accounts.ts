/** Accounts over REST. The token is kept in a cookie that scripts cannot read. */
import type { Accounts } from '../lib/data/source'
import { call, getJson } from './http'
import { leaveForProvider, providerHost } from './provider'
import type { WireSession } from './wire'

const SESSION = '/session'
const JSON_BODY = { 'content-type': 'application/json', accept: 'application/json' }

export const accounts = (session: string): Accounts => ({
  async who() {
    return getJson<WireSession>(session)
  },

  async signIn(token) {
    const answer = await call(SESSION, { method: 'POST', headers: JSON_BODY, body: JSON.stringify({ token }) })
    return ((await answer.json()) as WireSession).user
  },

  async signOut() {
    await call(SESSION, { method: 'DELETE' })
  },

  provider: providerHost,
  leave: leaveForProvider,
})
