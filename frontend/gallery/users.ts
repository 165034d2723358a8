/** Users for a source of fixed data: any token is taken. */
import { type Source, SourceError } from '../src/lib/data/source'

/** The source as `user` has it; empty: as somebody who has not signed in yet. */
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
      async signOut() {
        name = ''
      },
    },
    shares: { share: async () => 'f'.repeat(32), unshare: async () => {} },
  }
}
