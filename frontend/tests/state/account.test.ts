import { describe, expect, it, vi } from 'vitest'
import { fixedSource } from '../../gallery/source'
import { type Accounts, SourceError } from '../../src/lib/data/source'
import { Account } from '../../src/state/account.svelte'
import { Selection } from '../../src/state/selection.svelte'
import { Session } from '../../src/state/session.svelte'
import { Sharing } from '../../src/state/sharing.svelte'

const refused = () => Promise.reject(new SourceError('Sign in.', 'unauthorized', 401))
const KEY = 'f'.repeat(32)

/** Refuses, but only once told to. */
function late(): { who: Accounts['who']; answer: () => void } {
  let answer = () => {}
  const told = new Promise<void>((resolve) => {
    answer = resolve
  })
  return { who: () => told.then(refused), answer }
}

function accounts(over: Partial<Accounts> = {}): Accounts {
  return {
    who: async () => ({ user: 'ada', home: 'cluster' }),
    signIn: async (token) => (token === 'right' ? 'ada' : refused()),
    signOut: async () => {},
    provider: async () => '',
    leave: async () => {},
    ...over,
  }
}

describe('Account', () => {
  it('has no user if the source has none, and sends no request', async () => {
    for (const of of [
      undefined,
      accounts({ who: async () => ({ user: null, home: 'embedded' }) }),
      accounts({ who: refused }),
    ]) {
      const it = new Account(of)
      await it.learn()
      expect([it.user, it.wanted, it.open]).toEqual([null, false, false])
    }
  })

  it('knows who is signed in', async () => {
    const it = new Account(accounts())
    await it.learn()
    expect(it.user).toBe('ada')
  })

  it('takes the right token after a wrong one', async () => {
    const it = new Account(accounts())
    it.ask()
    expect([it.wanted, it.open]).toEqual([true, true])
    expect(await it.signIn('wrong')).toBe(false)
    expect(it.error).toContain('invalid or has been revoked')
    expect(it.open).toBe(true)
    expect(await it.signIn('right')).toBe(true)
    expect([it.user, it.wanted, it.open, it.error]).toEqual(['ada', false, false, ''])
  })

  it('offers the identity provider of the server, and says why it cannot be reached or signed no one in', async () => {
    const leave = vi.fn(() => Promise.reject(new SourceError('It cannot be reached.', 'provider-unavailable', 503)))
    const it = new Account(accounts({ provider: async () => 'id.lab.example', leave, refusal: 'No access.' }))
    expect([it.provider, it.error]).toEqual(['', 'No access.'])
    it.ask()
    await vi.waitFor(() => expect(it.provider).toBe('id.lab.example'))
    expect(it.error).toBe('No access.')
    await it.leave()
    expect([leave.mock.calls.length, it.error, it.busy]).toEqual([1, 'It cannot be reached.', false])
  })

  it('keeps a reader signed in when an older request is refused', async () => {
    const { who, answer } = late()
    const it = new Account(accounts({ who }))
    const [learnt, asked] = [it.learn(), it.refused(false)]
    await it.refused(true)
    expect(await it.signIn('right')).toBe(true)
    answer()
    await Promise.all([learnt, asked])
    expect([it.user, it.wanted, it.open]).toEqual(['ada', false, false])
  })

  it('does not ask a reader who has signed in since a request was refused', async () => {
    for (const [user, asks] of [
      ['ada', false],
      [null, true],
    ] as const) {
      const it = new Account(accounts({ who: async () => ({ user, home: 'cluster' }) }))
      await it.recheck()
      expect([it.wanted, it.open]).toEqual([asks, asks])
    }
  })

  it('does not reopen a panel that the reader has closed', async () => {
    const { who, answer } = late()
    const it = new Account(accounts({ who }))
    const asked = it.refused(false)
    await it.refused(true)
    it.open = false
    answer()
    await asked
    expect([it.wanted, it.open]).toEqual([true, false])
  })

  it('says why signing in failed where the token is not to blame', async () => {
    const gone = () => Promise.reject(new SourceError('The server cannot be reached.', 'unreachable', 0))
    const it = new Account(accounts({ signIn: gone }))
    expect(await it.signIn('right')).toBe(false)
    expect(it.error).toBe('The server cannot be reached.')
    expect(it.busy).toBe(false)
  })

  it('sends a token once, however often the button is pressed', async () => {
    const signIn = vi.fn(async () => 'ada')
    const it = new Account(accounts({ signIn }))
    expect(await Promise.all([it.signIn('right'), it.signIn('right')])).toEqual([true, false])
    expect(signIn).toHaveBeenCalledOnce()
  })
})

describe('Sharing', () => {
  it('has a key until it is revoked', async () => {
    const unshare = vi.fn(async () => {})
    const it = new Sharing({ share: async () => KEY, unshare })
    await it.start('a')
    expect([it.open, it.shared, it.error]).toEqual([true, { id: 'a', key: KEY }, ''])
    await it.stop()
    expect([it.shared, it.error]).toEqual([undefined, ''])
    expect(unshare).toHaveBeenCalledWith('a')
  })

  it('says what went wrong, and keeps the key that it could not take back', async () => {
    const it = new Sharing({ share: async () => KEY, unshare: refused })
    await it.start('a')
    await it.stop()
    expect([it.shared?.key, it.error]).toEqual([KEY, 'Sign in.'])
  })
})

describe('Session', () => {
  it('tells that the source wants to know who asks', async () => {
    const onstranger = vi.fn()
    const it = new Session({ ...fixedSource(), catalogue: refused }, onstranger)
    await it.start()
    expect(onstranger).toHaveBeenCalledOnce()
    expect(it.catalogue).toBeUndefined()
  })

  it('reads a shared analysis, never cancels it, and names a model that is not in the catalogue', async () => {
    const source = fixedSource()
    const request = { model: 'theirs', text: 'One.', textPair: '', kind: '', measures: [] }
    const mechanism = { name: 'jump', params: { order: 2 } }
    const lenses = [{ name: 'effective', params: { rank: 1 } }]
    const { id } = await source.submit({ ...request, mechanism, lenses }, new AbortController().signal)
    const cancel = vi.fn(async () => {})
    const it = new Session({ ...source, cancel })
    await it.start()
    expect(await it.read(id, 'weights')).toBe(true)
    expect([it.shown?.analysis.text, it.shown?.lens]).toEqual(['One.', 'effective'])
    expect(it.catalogue?.models.at(-1)?.name).toBe('theirs')
    const second = it.read(id, 'weights')
    await it.cancel()
    expect(await second).toBe(false)
    expect(cancel).not.toHaveBeenCalled()

    const selection = new Selection(`#analysis=${id}&share=${KEY}&head=1.2`)
    selection.adopt(it.shown!.analysis, { name: 'softmax', params: {} })
    expect([selection.text, selection.model, selection.mechanism, selection.params]).toEqual([
      'One.',
      'theirs',
      'jump',
      '{"order":2}',
    ])
    expect(selection.paramsOf('effective')).toBe('{"rank":1}')
    expect(selection.fragment).toBe(`head=1.2&analysis=${id}&share=${KEY}`)
  })
})

describe('Selection', () => {
  it('makes a link that says how to look, not what at', () => {
    const it = new Selection('#text=private&model=minilm&mechanism=jump&lens=effective&head=1.2&view=map')
    const link = it.linkTo('a', KEY)
    expect(link).toBe(`#lens=effective&view=map&head=1.2&analysis=a&share=${KEY}`)
    const other = new Selection(link)
    expect([other.shared, other.share, other.text, other.lens]).toEqual(['a', KEY, '', 'effective'])
  })

  it.each(['#analysis=a', `#share=${KEY}`])('takes %s for no link', (fragment) => {
    expect(new Selection(fragment).shared).toBe('')
  })
})
