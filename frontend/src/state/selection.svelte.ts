/** Everything that is chosen on the page. It lives in the address, so that reload, back and shared links work. */
import { type Analysis, type Head, headName, type Method } from '../lib/data/analysis'
import { isEffect } from '../lib/data/effects'
import { pickParams, replaceParams } from '../lib/data/params'
import { MOST_SELECTED, sameHead, toggleHead } from '../lib/maths/merge'
import { linkProblem, writeFragment } from '../lib/net/fragment'
import { addressFields } from './fields.svelte'
import {
  ALONE,
  DETERMINED,
  describe,
  FIELDS,
  INPUT,
  inPlaceOfEffects,
  NO_EFFECTS,
  NOT_SHARED,
  OF_TOKENS,
  type Patch,
} from './selection-fields'

/** Characters that the server accepts. */
const LONGEST_VIEW = 4000
/** What a view in a file can do without, and in which order it is left out until the rest is short enough. */
const SPARE = ['pins', 'find', 'notes', 'heads'] as const

/** `step` adds a history entry, unless the same fields changed a moment ago. */
type History = 'push' | 'replace' | 'step'

/** Changes within this time are one step, such as a dragged slider or a walk through the heads. */
const ONE_STEP_MS = 1000
/** The position of the current history entry in this visit. */
const stepNow = (): number => (globalThis.history?.state as { step?: number } | null)?.step ?? 0

/** Updating the address takes milliseconds, and browsers complain about updates at every frame. */
const ADDRESS_MS = 50

export class Selection extends addressFields(FIELDS) {
  #later: ReturnType<typeof setTimeout> | undefined
  #last = { what: '', when: 0 }
  /** The input in the address. */
  #written: Patch = {}
  /** The position of the last history entry of this visit. */
  #furthest = stepNow()

  constructor(fragment = '') {
    super()
    this.read(fragment)
  }

  override read(fragment: string): void {
    clearTimeout(this.#later)
    this.#later = undefined
    this.#last.what = ''
    super.read(fragment)
    this.#remember()
  }

  #remember(): void {
    const { text, pair, chat, ids, targets } = this.texts
    this.#written = { text, pair, chat, ids, targets }
  }

  /** Of the address: it keeps the text before one that is too long. */
  get fragment(): string {
    return linkProblem(this.link) ? this.encode(this.#written) : this.link
  }

  /** Everything that is chosen, which may be too long for an address. */
  get link(): string {
    return this.encode(this.shared ? DETERMINED : {})
  }

  /** What the reader chooses is a step that can be undone; what the page fills in replaces the current entry, a moment later. */
  set(patch: Patch, history: History = 'step'): void {
    const push = history === 'push' || (history === 'step' && this.#begins(patch))
    if (push) this.settle()
    const other = INPUT.some((name) => name in patch && patch[name] !== this.texts[name])
    // What the page fills in, such as the first example, keeps what a link points at.
    Object.assign(this.texts, other ? { most: '', ...(history === 'replace' ? {} : OF_TOKENS) } : {}, patch)
    if (push) this.#write('pushState')
    else this.#later ??= setTimeout(() => this.settle(), ADDRESS_MS)
  }

  #begins(patch: Patch): boolean {
    const [what, when] = [Object.keys(patch).sort().join(), performance.now()]
    const same = what === this.#last.what && when - this.#last.when < ONE_STEP_MS
    this.#last = { what, when }
    return !same
  }

  /** Show what another address says, as a step. */
  visit(fragment: string): void {
    this.settle()
    this.read(fragment)
    this.#write('pushState')
  }

  /** Go back one step; at the beginning of the visit, stay. */
  undo(): void {
    this.settle()
    if (stepNow() > 0) window.history.back()
  }

  /** Go forward one step. */
  redo(): void {
    this.settle()
    if (stepNow() < this.#furthest) window.history.forward()
  }

  /** Write the pending address. */
  settle(): void {
    if (this.#later === undefined) return
    clearTimeout(this.#later)
    this.#later = undefined
    this.#write('replaceState')
  }

  #write(how: 'pushState' | 'replaceState'): void {
    const { fragment } = this
    if (fragment === this.link) this.#remember()
    if (`#${fragment}` === (location.hash || '#')) return
    const step = stepNow() + (how === 'pushState' ? 1 : 0)
    if (how === 'pushState') this.#furthest = step
    writeFragment(how, { step }, fragment)
  }

  /** Describe a shared analysis; the address still names it by id. */
  adopt(analysis: Analysis, own: Method): void {
    Object.assign(this.texts, describe(analysis, own))
  }

  /** Choose an earlier analysis again. */
  recall(analysis: Analysis, own: Method, lens: string): void {
    this.set({ ...NOT_SHARED, ...OF_TOKENS, ...describe(analysis, own), lens }, 'push')
  }

  /** From now on requests are the reader's own; going back shows what was shared. */
  leave(): void {
    if (this.shared) this.set(NOT_SHARED, 'push')
  }

  /** Whether the open map is compared with another analysis. */
  get #beside(): boolean {
    return !['lens', 'head'].includes(this.with)
  }

  /** What a view of the analysis alone leaves out: what it describes itself, comparison with others, and effects. */
  get #alone(): Patch {
    return {
      ...DETERMINED,
      ...(this.#beside ? { ...ALONE, compare: 'off' } : {}),
      ...NO_EFFECTS,
      ...inPlaceOfEffects(this),
    }
  }

  /** The address that shows this view to anyone with the key. */
  linkTo(analysis: string, share: string): string {
    return `#${this.encode({ ...this.#alone, analysis, share })}`
  }

  /** Whether the view has something that `linkTo` leaves out. */
  get hasMore(): boolean {
    const effects = [this.colour, this.lens].some(isEffect) || this.predict || this.off.length > 0
    return effects || (this.#beside && this.compare !== 'off')
  }

  /** The view of an analysis as it opens from a file of its own, which has nothing to compare it with but its lenses and heads. */
  get exported(): string {
    const alone: Patch = { ...this.#alone, ...NOT_SHARED }
    for (const name of SPARE) {
      const view = this.encode(alone)
      if (view.length <= LONGEST_VIEW) return view
      alone[name] = ''
    }
    return this.encode(alone)
  }

  /** Look at the same analysis and head as at first. */
  reset(): void {
    const kept = new Set([...Object.keys(DETERMINED), ...Object.keys(NOT_SHARED), 'head'])
    const initial = Object.entries(FIELDS).flatMap(([name, { initial }]) => (kept.has(name) ? [] : [[name, initial]]))
    this.set(Object.fromEntries(initial), 'replace')
  }

  openHead(head: Head, history: History = 'step'): void {
    const name = headName(head)
    // Opening the head of the comparison swaps the two.
    const swapped = this.with === 'head' && this.than === name && this.texts.head ? { than: this.texts.head } : {}
    this.set({ head: name, heads: '', ...swapped }, history)
  }

  /** Select heads, in place of those that are selected or in addition. One alone is opened. */
  selectHeads(heads: readonly Head[], open: Head, more: boolean): void {
    const all = more ? [...(this.heads.length > 0 ? this.heads : [open]), ...heads] : heads
    const chosen = [...new Map(all.map((one) => [headName(one), one])).values()].slice(0, MOST_SELECTED)
    if (chosen.length === 0) return
    const last = chosen.find((one) => sameHead(one, open)) ?? chosen[0]
    this.set({ head: headName(last), heads: chosen.length > 1 ? chosen.map(headName).join(' ') : '' }, 'push')
  }

  /** Show these heads as small maps. */
  showEach(heads: readonly Head[]): void {
    const shown = heads.slice(0, MOST_SELECTED).map(headName)
    this.set({ head: shown[0] ?? '', heads: shown.join(' '), merge: 'each', compare: 'off' }, 'push')
  }

  /** Compare the open head with another one, or end that comparison. */
  compareHeads(): void {
    const on = this.with === 'head' && this.compare !== 'off'
    const compare = on ? 'off' : this.compare === 'off' ? 'side' : this.compare
    this.set({ compare, with: 'head', than: this.with === 'head' ? this.than : '', thanparams: '', twin: '' }, 'push')
  }

  /** Add a head to those that are open, or remove it. */
  addHead(head: Head, open: Head, how: 'toggle' | 'add'): void {
    const now = this.heads.length > 0 ? this.heads : [open]
    const next = how === 'add' && now.some((other) => sameHead(other, head)) ? now : toggleHead(now, head)
    const last = next.some((other) => sameHead(other, head)) ? head : (next.at(-1) ?? open)
    this.set({ head: headName(last), heads: next.length > 1 ? next.map(headName).join(' ') : '' }, 'step')
  }

  /** The id of the shared analysis that is shown; empty otherwise. */
  get shared(): string {
    return this.share && this.analysis
  }

  /** Parameters of a lens, as JSON; empty for the defaults. */
  paramsOf(lens: string): string {
    return pickParams(this.lensparams, lens)
  }

  /** The field `lensparams` with other parameters of one lens. */
  withParams(lens: string, params: string): string {
    return replaceParams(this.lensparams, lens, params)
  }

  /** Parameters of a method for effects that were chosen, as JSON. */
  effectParamsOf(method: string): string {
    return pickParams(this.effectparams, method)
  }

  /** The field `effectparams` with other parameters of one method. */
  withEffectParams(method: string, params: string): string {
    return replaceParams(this.effectparams, method, params)
  }
}

export type View = Exclude<Selection['view'], ''>
export type Layout = Exclude<Selection['graph'], ''>
export type Compare = Selection['compare']
