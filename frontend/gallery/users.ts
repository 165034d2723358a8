/** Users for a fixed source: any token is accepted. */
import { type Source, SourceError } from '../src/lib/data/source'

/** The source as seen by `user`; empty for a reader who has not signed in. */
export function withUsers(source: Source, user: string): Source {
  let name = user
  const known = <T>(ask: () => Promise<T>) => {
    if (name === '') throw new SourceError('Sign in to go on.', 'unauthorized', 401)
    return ask()
  }
  return {
    ...source,
    catalogue: async () => known(source.catalogue),
    accounts: {
      who: async () => known(async () => ({ user: name, home: 'cluster' })),
      async signIn() {
        name = 'ada'
        return name
      },
      provider: async () => '',
      async leave() {},
      async signOut() {
        name = ''
      },
    },
    shares: { share: async () => 'f'.repeat(32), unshare: async () => {} },
  }
}
