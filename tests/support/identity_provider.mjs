// A real identity provider for tests: node identity_provider.mjs PORT REDIRECT_URI [CLIENT_SECRET]
// Its sign-in page takes any name, and asks for no consent. A name such as "ada.physics" is that of a member of the group physics.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [port, redirectUri, secret] = process.argv.slice(2)
const resolve = createRequire(`${process.cwd()}/frontend/package.json`).resolve
const { Provider } = await import(pathToFileURL(resolve('oidc-provider')))

const provider = new Provider(`http://localhost:${port}`, {
  clients: [
    {
      client_id: 'headscope',
      redirect_uris: [redirectUri],
      ...(secret ? { client_secret: secret } : { token_endpoint_auth_method: 'none' }),
    },
  ],
  claims: { openid: ['sub', 'groups'], profile: ['preferred_username'], email: ['email', 'email_verified'] },
  findAccount: (_, sub) => ({
    accountId: sub,
    claims: () => ({
      sub,
      preferred_username: sub.split('.')[0],
      email: `${sub}@lab.example`,
      email_verified: true,
      groups: sub.split('.').slice(1),
    }),
  }),
  async loadExistingGrant({ oidc }) {
    const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId })
    grant.addOIDCScope('openid profile email')
    await grant.save()
    return grant
  },
})
process.stdin.on('end', () => process.exit()).resume()
provider.listen(Number(port), '127.0.0.1', () => console.log('listening'))
