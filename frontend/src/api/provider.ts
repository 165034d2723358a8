/** Signing in with the server's identity provider. The page leaves for the provider, which sends the reader back with a code in the query. */
import { SourceError } from '../lib/data/source'
import { call, getJson } from './http'
import type { WireProviderOffer, WireSignInCode, WireSignInStart } from './wire'

const PATH = '/session/oidc'
/** Where the address of the page is kept while the reader is away. */
const KEPT = 'headscope:address'

/** The host of the provider; empty if there is none. */
export async function providerHost(): Promise<string> {
  const { issuer } = await getJson<WireProviderOffer>(PATH)
  return issuer === null ? '' : new URL(issuer).host
}

export async function leaveForProvider(): Promise<void> {
  const answer = await call(PATH, { method: 'POST', headers: { accept: 'application/json' } })
  const { url } = (await answer.json()) as WireSignInStart
  sessionStorage.setItem(KEPT, location.pathname + location.search + location.hash)
  location.assign(url)
}

/** If the provider has sent the reader: restore the address, and exchange the code for a session. Returns why that failed; empty if it did not. */
export async function arriveFromProvider(): Promise<string> {
  const query = new URLSearchParams(location.search)
  const state = query.get('state')
  if (!state) return ''
  history.replaceState(null, '', sessionStorage.getItem(KEPT) ?? location.pathname)
  sessionStorage.removeItem(KEPT)
  const body: WireSignInCode = { state, code: query.get('code'), iss: query.get('iss') }
  const headers = { 'content-type': 'application/json', accept: 'application/json' }
  try {
    await call(`${PATH}/code`, { method: 'POST', headers, body: JSON.stringify(body) })
    return ''
  } catch (error) {
    return error instanceof SourceError ? error.message : 'Signing in failed. Try again.'
  }
}
