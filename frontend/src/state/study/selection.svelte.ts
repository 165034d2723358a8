/** What is chosen among studies. It lives in the address, so that reload, back and a sent link all work. */
import { type Head, headName, parseHead } from '../../lib/data/analysis'
import { type Params, readParams } from '../../lib/data/params'
import { decodeFragment, encodeFragment, writeFragment } from '../../lib/net/fragment'

export type StudyTab = 'figures' | 'heads' | 'tables' | 'data'

const INITIAL = {
  /** The open study, and the one it is compared with. */
  study: '',
  other: '',
  show: 'figures',
  /** Figures that are open, and their own parameters as JSON by name; `none` for none. */
  figures: '',
  params: '',
  table: '',
  lens: 'weights',
  /** Of a study with two variants, the one that is shown. */
  variant: '0',
  /** Heads: a query, what they are ranked and coloured by (with `asc` for the smallest first), and the open one. */
  find: '',
  measure: '',
  head: '',
  /** A study that is not started yet, as JSON. */
  draft: '',
  /** The key to a study that somebody shared. */
  share: '',
}
type Fields = typeof INITIAL

export class StudySelection {
  #fields = $state<Fields>({ ...INITIAL })

  constructor(fragment: string) {
    this.read(fragment)
  }

  read(fragment: string): void {
    this.#fields = decodeFragment(fragment, INITIAL) as Fields
  }

  /** What a person chose is a new entry of the browser's history; what the page fills in replaces the current one. */
  set(patch: Partial<Fields>, how: 'push' | 'replace' = 'push'): void {
    Object.assign(this.#fields, patch)
    const fragment = encodeFragment(this.#fields, INITIAL)
    if (`#${fragment}` === (location.hash || '#')) return
    writeFragment(how === 'push' ? 'pushState' : 'replaceState', null, fragment)
  }

  /** Another study; how it is looked at stays. */
  open(study: string): void {
    this.set({ study, other: '', head: '', draft: '', share: '' })
  }

  /** What somebody with that key sees: this study as it is seen here, beside no other. */
  linkTo(share: string): string {
    return `#${encodeFragment({ ...this.#fields, other: '', draft: '', share }, INITIAL)}`
  }

  openHead(head: Head): void {
    this.set({ head: headName(head) })
  }

  get study() {
    return this.#fields.study
  }
  get other() {
    return this.#fields.other
  }
  /** The study that is compared with; nothing is compared with itself. */
  get beside() {
    return this.other === this.study ? '' : this.other
  }
  get show(): StudyTab {
    const { show } = this.#fields
    return show === 'heads' || show === 'tables' || show === 'data' ? show : 'figures'
  }
  get figures() {
    return this.#fields.figures
  }
  get table() {
    return this.#fields.table
  }
  get lens() {
    return this.#fields.lens
  }
  get variant() {
    return this.#fields.variant === '1' ? 1 : 0
  }
  get find() {
    return this.#fields.find
  }
  get measure() {
    return this.#fields.measure
  }
  get head(): Head | undefined {
    return parseHead(this.#fields.head)
  }
  get share() {
    return this.#fields.share
  }
  get draft() {
    return this.#fields.draft
  }
  /** Parameters of a figure, as JSON; empty for the defaults. */
  paramsOf(figure: string): string {
    const found = readParams(this.#fields.params)[figure]
    return found ? JSON.stringify(found) : ''
  }
  setParams(figure: string, text: string): void {
    const { [figure]: _, ...rest }: Params = readParams(this.#fields.params)
    const all = text === '' ? rest : { ...rest, [figure]: readParams(text) }
    this.set({ params: Object.keys(all).length === 0 ? '' : JSON.stringify(all) })
  }
}
