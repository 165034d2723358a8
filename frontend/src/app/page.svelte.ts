/** The state of the page of one analysis, and what the reader can do with all of it. */

import type { HeadScores } from '../lib/data/batteries'
import { measureOf } from '../lib/data/search'
import type { HistoryItem, Source } from '../lib/data/source'
import { aboutImages } from '../lib/net/problem'
import { Account } from '../state/account.svelte'
import { Chosen } from '../state/chosen.svelte'
import { ComparisonRun } from '../state/comparison-run.svelte'
import { HeadEffects } from '../state/head-effects.svelte'
import { History } from '../state/history.svelte'
import { InputDraft } from '../state/input-draft.svelte'
import { KeyedRun } from '../state/keyed-run.svelte'
import { Live } from '../state/live.svelte'
import { ModelLibrary } from '../state/model-library.svelte'
import { Pointer } from '../state/pointer.svelte'
import { HeadSearch } from '../state/search.svelte'
import { Selection } from '../state/selection.svelte'
import { Session } from '../state/session.svelte'
import { Sessions } from '../state/sessions.svelte'
import { Sharing } from '../state/sharing.svelte'
import { Statistics } from '../state/statistics.svelte'
import { Theme } from '../state/theme.svelte'
import { Drawn } from './drawn.svelte'
import { handleFiles } from './files'
import { Requests } from './requests.svelte'
import { connectSearch } from './search'
import { Status } from './status.svelte'
import { Tour } from './tour.svelte'

export type Page = ReturnType<typeof createPage>

/** `fragment` is that of the address; `onhelp` is called when a sentence asks for help. */
export function createPage(source: Source, fragment: string, onhelp: () => void) {
  const selection = new Selection(fragment)
  const account = new Account(source.accounts)
  const session = new Session(source, account.refused)
  const comparisonRun = new ComparisonRun(source, account.refused)
  const history = new History(source)
  const search = new HeadSearch(source.headQueries)
  const statistics = new Statistics(source.figures, selection)
  const sessions = new Sessions(() => account.user)
  const theme = new Theme()
  const live = new Live()
  const draft = new InputDraft(selection)
  const chosen = new Chosen(selection, session)
  const drawn = new Drawn({ selection, chosen, draft, session })
  const needs = () => [
    measureOf(selection.colour),
    ...search.needs,
    ...statistics.needs,
    ...(selection.classes ? ['patterns'] : []),
    ...(selection.scatter ? [measureOf(selection.x), measureOf(selection.y)] : []),
  ]
  const requests = new Requests({ selection, chosen, drawn, session, comparisonRun, live, needs })
  const status = new Status({ chosen, drawn, requests, session, comparisonRun, draft, live })
  const shown = () => session.shown
  const pointer = new Pointer(selection, () => {
    const { tokens = [], keyTokens = [] } = shown()?.analysis ?? {}
    return [tokens.length, keyTokens.length]
  })
  const effects = new HeadEffects(source.effects, selection, session, pointer)
  const { batteries } = source
  const tests =
    batteries &&
    new KeyedRun<{ key: string }, HeadScores>(({ key }, report, signal) => batteries.test(key, report, signal))
  const searchBox = connectSearch({
    search,
    selection,
    pointer,
    shown,
    lens: () => chosen.lens,
    command(name) {
      if (name === 'help') onhelp()
      else if (name !== 'reset' && theme.dark !== (name === 'dark')) theme.toggle()
    },
    reasons: () => chosen.support?.measures ?? {},
    analyse: () => requests.analyse(),
    busy: () => session.busy,
    complete: requests.complete,
  })
  const { share } = selection

  /** Show what the address says now. */
  function follow(): void {
    requests.endTyping()
    // A page has one key.
    if (selection.share !== '' && selection.share !== share) {
      location.reload()
      return
    }
    requests.open()
    if (session.catalogue) void requests.show()
  }

  /** Show only the open head, or everything again. */
  const focus = () => selection.set({ focus: selection.focus ? '' : 'on' })

  const cancel = () => void Promise.all([session.cancel(), comparisonRun.cancel()])

  function dismiss(): void {
    session.error = ''
    comparisonRun.dismiss()
  }

  async function start(): Promise<void> {
    requests.open()
    void account.learn().then(() => live.start(account.home))
    await Promise.all([session.start(), statistics.learn()])
    if (session.catalogue) await requests.show()
  }

  return {
    source,
    selection,
    account,
    session,
    history,
    search,
    searchBox,
    pointer,
    effects,
    tests,
    statistics,
    sessions,
    theme,
    live,
    draft,
    chosen,
    drawn,
    requests,
    status,
    sharing: new Sharing(source.shares),
    library: new ModelLibrary(source, (model) => session.renew(model)),
    tour: new Tour({
      selection,
      chosen,
      drawn,
      session,
      requests,
      samples: source.samples ?? [],
      texts: source.texts ?? [],
    }),
    files: handleFiles({ chosen, drawn, requests, session }),
    start,
    follow,
    focus,
    dismiss,

    get error(): string {
      const error = session.error || comparisonRun.error
      return chosen.kind === 'vision' ? aboutImages(error) : error
    },

    recall(past: HistoryItem): void {
      history.open = false
      void requests.recall(past)
    },

    openSession(link: string): void {
      sessions.open = false
      selection.visit(link)
      follow()
    },

    cancel,

    /** Cancel what runs, or close what was opened last. */
    escape(): void {
      if (session.busy) cancel()
      else if (effects.cancel()) return
      else if (session.error || comparisonRun.error) dismiss()
      else if (pointer.pinned) pointer.clear()
      else if (selection.focus) focus()
      else if (statistics.open.length > 0 || selection.scatter) selection.set({ figures: '', scatter: '' })
      else (document.activeElement as HTMLElement | null)?.blur()
    },

    /** The next way to compare two lenses. */
    compare(): void {
      const order = ['off', 'side', 'difference'] as const
      const next = order[(order.indexOf(selection.compare) + 1) % order.length]
      if (chosen.other) selection.set({ compare: next })
      void requests.complete()
    },

    compareHeads(): void {
      selection.compareHeads()
      void requests.complete()
    },

    /** The server could not be reached: repeat what was asked of it. */
    retry(): void {
      session.say('')
      requests.forget()
      if (session.catalogue) void requests.show()
      else void start()
    },

    /** The token was accepted: repeat what was refused. */
    signedIn(): void {
      session.support = {}
      requests.forget()
      void start()
    },

    /** Leave nothing of the reader's on the page or in its address. */
    async signOut(): Promise<void> {
      await account.signOut()
      location.replace(location.pathname)
    },

    /** Why the reader should sign in. */
    get why(): string {
      if (shown()) return 'Sign in to run analyses. Your text is kept.'
      if (selection.shared) return 'This link has been revoked or is incomplete. Sign in if the analysis is yours.'
      if (account.provider) return 'Sign in with your account, or with an access token.'
      return 'Sign in with an access token. The server’s administrator can create one.'
    },
  }
}
