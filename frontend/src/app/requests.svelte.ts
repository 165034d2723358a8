/** Requests of the page: whether what is chosen is on screen, and when it is submitted. */
import { type Analysis, type Declaration, hasSameTokens, type Method, type Request } from '../lib/data/analysis'
import { isIncomplete } from '../lib/data/fitting'
import { readParams } from '../lib/data/params'
import { EXAMPLES } from '../lib/text/examples'
import { beginning } from '../lib/text/length'
import { writeMask } from '../lib/text/mask'
import { BASE, type Chosen } from '../state/chosen.svelte'
import { type ComparisonRun, comparisonKey } from '../state/comparison-run.svelte'
import type { Live } from '../state/live.svelte'
import type { OpenAnalysis } from '../state/open-analysis'
import type { Selection } from '../state/selection.svelte'
import type { Session } from '../state/session.svelte'
import type { Dependencies, Drawn } from './drawn.svelte'

interface PageState {
  selection: Selection
  chosen: Chosen
  drawn: Drawn
  session: Session
  comparisonRun: ComparisonRun
  live: Live
  /** Additional measures that parts of the page need. */
  needs: () => readonly string[]
}

type Patch = Parameters<Selection['set']>[0]

/** Always computed; others when they are chosen. */
const MEASURES = ['entropy', 'null_share', 'null_share_rows', 'leverage']

export class Requests {
  /** The last request, as one string. */
  #asked = ''
  /** Measures that are added to the analysis on screen, whose pictures stay as they are; empty during other runs. */
  adding = $state.raw<readonly string[]>([])
  /** A request is being put together. */
  #preparing = $state(false)
  /** The text on screen comes from typing, so that further typing replaces its history entry. */
  #typing = false
  readonly #parts: PageState

  readonly #measured: ReadonlySet<string> = $derived.by(() => new Set([...MEASURES, ...this.#parts.needs()]))
  /** Nothing is on its way to the screen, so that what changed waits for the reader. */
  readonly waiting: boolean = $derived.by(
    () =>
      this.#parts.drawn.changed !== undefined &&
      !this.#preparing &&
      !this.#parts.live.pending &&
      !this.#parts.session.busy,
  )

  constructor(parts: PageState) {
    this.#parts = parts
  }

  get #chosen(): Chosen {
    return this.#parts.chosen
  }

  get #shown(): OpenAnalysis | undefined {
    return this.#parts.session.shown
  }

  #known(): Declaration[] {
    return this.#parts.chosen.measures.filter(({ name }) => this.#measured.has(name))
  }

  /** Undefined if the input is incomplete. */
  #request(mask: readonly number[]): Request | undefined {
    const { selection, chosen, drawn } = this.#parts
    const input = drawn.input(mask)
    if (!input) return undefined
    const compared = selection.compare === 'off' ? '' : selection.other
    const read = chosen.lenses.filter(({ name }) => BASE.includes(name) || name === chosen.lens || name === compared)
    return {
      model: chosen.model,
      ...input,
      kind: selection.kind,
      mechanism: chosen.mechanism,
      lenses: read.map(({ name }): Method => ({ name, params: readParams(selection.paramsOf(name)) })),
      measures: this.#known().map(({ name }) => name),
    }
  }

  /** Request the selected lenses and measures that the analysis on screen lacks. */
  complete = async (): Promise<void> => {
    const { selection, comparisonRun, session } = this.#parts
    // A page of one analysis supports no others than its own lenses and measures.
    await session.learn(this.#chosen.model)
    const { lens, other } = this.#chosen
    const now = this.#shown?.analysis
    const wants = selection.compare === 'off' || selection.with !== 'lens' ? [lens] : [lens, other]
    const compared = selection.compare === 'off' || comparisonRun.isFor(selection, this.#shown?.second, lens)
    const has = compared && wants.every((name) => now?.lenses.includes(name))
    if (!has || this.#known().some(({ name }) => !now?.measures.includes(name))) await this.analyse()
  }

  setLens = (name: string): void => {
    this.#parts.selection.set({ lens: name })
    void this.complete()
  }

  moveLens = (step: number): void => {
    const { lens, lenses } = this.#chosen
    const at = lenses.findIndex(({ name }) => name === lens)
    const next = lenses[(at + step + lenses.length) % lenses.length]
    if (next) this.setLens(next.name)
  }

  /**
   * Request what the address says; the same request again only if the reader insists (`again`). `live`: while typing. `asGiven`: pins and
   * zoom are of the requested text already. `mask` is written into the address once its analysis is on screen.
   */
  async analyse(again = false, live = false, asGiven = false, mask = this.#parts.selection.mask): Promise<void> {
    const { selection, session, comparisonRun, drawn } = this.#parts
    selection.leave()
    // Without the catalogue nothing can be requested; `show` does it once it is loaded.
    if (!session.catalogue) return
    this.#preparing = true
    await session.learn(this.#chosen.model)
    const wanted = this.#request(mask)
    const second = wanted && (await comparisonRun.request(wanted, selection, session))
    this.#preparing = false
    if (!wanted) return
    const { lens } = this.#chosen
    // If not all lenses fitted, another lens is another request.
    const key = JSON.stringify([wanted, second, this.#shown && isIncomplete(this.#shown.analysis) ? lens : ''])
    if (key === this.#asked && !again) return
    this.#asked = key
    const before = this.#shown?.analysis
    const asked = drawn.dependencies(mask)
    this.adding = this.#additions(wanted, asked)
    const done = await session.submit(wanted, lens, live, second && (() => comparisonRun.ask(second, lens, live)))
    if (!session.busy) this.adding = []
    if (done) {
      drawn.settle(asked)
      if (writeMask(mask) !== writeMask(selection.mask)) selection.set({ mask: writeMask(mask) }, 'push')
      // Of the first text, the address says what is pinned.
      if (before && !asGiven && !hasSameTokens(before, this.#shown?.analysis))
        selection.set({ pins: '', zoom: '', at: '' }, 'replace')
    } else if (this.#asked === key) this.#asked = ''
    if (done && drawn.upload) this.#keepImage()
  }

  /** The measures that this request adds, if it changes nothing else. */
  #additions({ lenses, measures }: Request, asked: Dependencies): string[] {
    const now = this.#shown?.analysis
    if (!now || !this.#parts.drawn.shows(asked)) return []
    if (!lenses.every(({ name }) => now.lenses.includes(name))) return []
    return measures.filter((name) => !now.measures.includes(name))
  }

  /** From now on the address names the image, which is not uploaded again. */
  #keepImage(): void {
    this.#parts.drawn.upload = ''
    this.#asked = ''
    const { selection } = this.#parts
    // An address without an image is no step of its own.
    selection.set({ image: this.#shown?.analysis.image ?? '' }, selection.image === '' ? 'replace' : 'push')
    this.#parts.drawn.settle()
  }

  choose = (patch: Patch): void => {
    this.endTyping()
    this.#parts.selection.set(patch, 'push')
    void this.analyse(true)
  }

  removeImage = (): void => {
    this.#parts.drawn.upload = ''
    this.choose({ image: '', tour: '', mask: '', pins: '', zoom: '', at: '' })
  }

  /** Analyse the beginning of a text that was refused as too long. */
  cut = (): void => {
    const { selection, session } = this.#parts
    const { fits, bytes } = session
    const part = (text: string) => (bytes > 0 ? beginning(text, bytes) : text)
    this.choose({ text: part(selection.text), pair: part(selection.pair), most: String(fits), mask: '' })
  }

  /** Mechanisms are reset if either model was not trained with softmax. */
  chooseModel = (name: string): void => {
    const plain = [this.#chosen.own, this.#chosen.ownOf(name)].every((own) => own.name === 'softmax')
    // Choosing the model of the comparison swaps the two.
    const { selection } = this.#parts
    const around =
      selection.with === 'model' && selection.than === name ? { than: this.#chosen.model, thanparams: '' } : {}
    this.choose({
      model: name,
      kind: '',
      mask: '',
      target: '',
      off: '',
      ...(plain ? {} : { mechanism: '', params: '' }),
      ...around,
    })
  }

  /** Mask these tokens and no others. A refusal leaves the address as it is. */
  mask = (tokens: readonly number[]): void => {
    this.endTyping()
    void this.analyse(false, false, false, tokens)
  }

  /** Why no token of the input can be masked; empty if the model may have a mask token. */
  get unmaskable(): string {
    const kind = this.#chosen.card?.kind
    if (kind === 'vision') return 'Patches of an image cannot be masked.'
    if (this.#parts.drawn.input()?.image) return 'Tokens cannot be masked beside an image.'
    if (kind === 'encoder-decoder') return 'Tokens of an encoder-decoder cannot be masked.'
    return this.#parts.drawn.input()?.generate ? 'Tokens cannot be masked while the model generates text.' : ''
  }

  /** Compare the masked text with itself, unmasked. */
  unmasked = (): void => {
    const { text, compare } = this.#parts.selection
    const shown = compare === 'off' ? 'side' : compare
    this.choose({ compare: shown, with: 'text', than: text, thanparams: '', twin: '' })
  }

  chooseMechanism = (name: string): void => {
    this.choose({ mechanism: name === this.#chosen.own.name ? '' : name, params: '' })
  }

  type = (text: string, pair: string): void => {
    const { selection, live } = this.#parts
    // With a comparison, each pause would start two runs; an image is hundreds of tokens.
    if (comparisonKey(selection) !== '' || this.#parts.drawn.input()?.image) return
    live.typed(text, pair, () => {
      if (text === selection.text && pair === selection.pair) return
      selection.set({ text, pair, chat: '', ids: '', targets: '' }, this.#typing ? 'replace' : 'push')
      this.#typing = true
      void this.analyse(false, true)
    })
  }

  endTyping(): void {
    this.#parts.live.stop()
    this.#typing = false
  }

  /** An address without a text opens the first example; its other fields are kept. */
  open(): void {
    const { selection } = this.#parts
    if (selection.shared || selection.text !== '') return
    const bare = selection.fragment === ''
    const { text, pair, head, show = {} } = EXAMPLES[0]
    selection.set({ text, pair, ...(selection.head ? {} : { head }), ...(bare ? show : {}) }, 'replace')
  }

  /** Show what the address says: a shared analysis, or a request of the reader's own. */
  async show(): Promise<void> {
    const { selection } = this.#parts
    if (!selection.shared) return this.analyse(false, false, true)
    const shown = await this.#read(selection.shared)
    if (!shown) return
    selection.adopt(shown.analysis, this.#chosen.ownOf(shown.analysis.model))
    if (this.#chosen.lens !== shown.lens) selection.set({ lens: shown.lens }, 'replace')
    this.#parts.drawn.settle()
  }

  /** Reopen an earlier analysis and describe it in the address. */
  async recall({ id }: Pick<Analysis, 'id'>): Promise<void> {
    this.endTyping()
    const shown = await this.#read(id)
    if (!shown) return
    this.#parts.selection.recall(shown.analysis, this.#chosen.ownOf(shown.analysis.model), shown.lens)
    this.#parts.drawn.settle()
  }

  async #read(id: string): Promise<OpenAnalysis | undefined> {
    this.forget()
    if (!(await this.#parts.session.read(id, this.#chosen.lens))) return undefined
    return this.#shown
  }

  /** Forget the last request, so that it can be repeated. */
  forget(): void {
    this.#asked = ''
  }
}
