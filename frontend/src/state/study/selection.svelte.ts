/** Everything that is chosen on the page of studies. It lives in the address, so that reload, back and shared links work. */
import { type Head, headName } from '../../lib/data/analysis'
import { pickParams, replaceParams } from '../../lib/data/params'
import { writeFragment } from '../../lib/net/fragment'
import { addressFields, choice, head, type Texts, text } from '../fields.svelte'

const FIELDS = {
  /** The open study, and the one it is compared with. */
  study: text(),
  other: text(),
  show: choice('figures', 'heads', 'tables', 'data'),
  /** Figures that are open, with commas, and their parameters as JSON by name; `none` for none. */
  figures: text(),
  params: text(),
  table: text(),
  lens: text('weights'),
  /** Which variant is shown, of a study with two. */
  variant: choice('0', '1'),
  /** Heads: a query, the measure that ranks and colours them (followed by `asc` if ascending), and the open head. */
  find: text(),
  measure: text(),
  head: head(),
  /** A study that has not been started yet, as JSON. */
  draft: text(),
  /** The key to a shared study. */
  share: text(),
}

export class StudySelection extends addressFields(FIELDS) {
  constructor(fragment: string) {
    super()
    this.read(fragment)
  }

  /** What the reader chooses is a new history entry; what the page fills in replaces the current one. */
  set(patch: Partial<Texts<typeof FIELDS>>, how: 'push' | 'replace' = 'push'): void {
    Object.assign(this.texts, patch)
    const fragment = this.encode()
    if (`#${fragment}` === (location.hash || '#')) return
    writeFragment(how === 'push' ? 'pushState' : 'replaceState', null, fragment)
  }

  /** Open another study, with the same view. */
  open(study: string): void {
    this.set({ study, other: '', head: '', draft: '', share: '' })
  }

  /** The address that opens a study with its key, without the study it is compared with. */
  linkTo(study: string, share: string): string {
    return `#${this.encode({ study, other: '', draft: '', share })}`
  }

  openHead(head: Head): void {
    this.set({ head: headName(head) })
  }

  /** The study to compare with; a study is never compared with itself. */
  get beside(): string {
    return this.other === this.study ? '' : this.other
  }

  /** Parameters of a figure, as JSON; empty for the defaults. */
  paramsOf(figure: string): string {
    return pickParams(this.params, figure)
  }

  setParams(figure: string, params: string): void {
    this.set({ params: replaceParams(this.params, figure, params) })
  }
}

export type StudyTab = StudySelection['show']
