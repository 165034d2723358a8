/** Requests of the page: what the selection amounts to, and when it is submitted. */
import {
  type Analysis,
  type Declaration,
  hasSameTokens,
  type KindSupport,
  type Method,
  type Model,
  type Reasons,
  type Request,
} from '../lib/data/analysis'
import { isIncomplete } from '../lib/data/fitting'
import { resolveMechanism, trainedMechanism } from '../lib/data/mechanism'
import { readParams } from '../lib/data/params'
import { EXAMPLES } from '../lib/text/examples'
import { beginning } from '../lib/text/length'
import { writeMask } from '../lib/text/mask'
import { type ComparisonRun, comparisonKey } from '../state/comparison-run.svelte'
import { buildInput, type Input } from '../state/input'
import type { InputDraft } from '../state/input-draft.svelte'
import type { Live } from '../state/live.svelte'
import type { Selection } from '../state/selection.svelte'
import type { OpenAnalysis, Session } from '../state/session.svelte'

interface PageState {
  selection: Selection
  draft: InputDraft
  session: Session
  comparisonRun: ComparisonRun
  live: Live
  /** Additional measures that parts of the page need. */
  needs: () => readonly string[]
}

type Patch = Parameters<Selection['set']>[0]

/** What a picture depends on, part by part, in words that a message can begin with. */
type Dependencies = Record<'Model' | 'Mechanism' | 'Input' | 'Attention' | 'Lens' | 'Comparison', string>

/** Always computed; other lenses and measures when they are chosen. */
const BASE = ['weights', 'effective']
const MEASURES = ['entropy', 'null_share', 'null_share_rows', 'leverage']

const carried = (items: readonly Declaration[] | undefined, reasons: Reasons | undefined): Declaration[] =>
  (items ?? []).filter(({ name }) => !reasons?.[name])

export class Requests {
  /** An image that has not been uploaded yet. */
  upload = $state('')
  /** The last request, as one string. */
  #asked = ''
  /** What the pictures on screen depend on. */
  #drawn = $state.raw<Dependencies>()
  /** Measures that are added to the analysis on screen, whose pictures stay as they are; empty during other runs. */
  adding = $state.raw<readonly string[]>([])
  /** A request is being put together. */
  #preparing = $state(false)
  /** The text on screen comes from typing, so that further typing replaces its history entry. */
  #typing = false
  readonly #parts: PageState

  readonly #measured: ReadonlySet<string> = $derived.by(() => new Set([...MEASURES, ...this.#parts.needs()]))
  readonly defaultModel: string = $derived.by(() => {
    const models = this.#parts.session.catalogue?.models ?? []
    return (models.find(({ isDefault }) => isDefault) ?? models.find(({ available }) => available))?.name ?? ''
  })
  readonly model: string = $derived.by(() => this.#parts.selection.model || this.defaultModel)
  readonly card: Model | undefined = $derived.by(() =>
    this.#parts.session.catalogue?.models.find(({ name }) => name === this.model),
  )
  /** The mechanism that the model was trained with, and the one in use. */
  readonly own: Method = $derived.by(() => this.#ownOf(this.model))
  readonly mechanism: Method = $derived.by(() =>
    resolveMechanism(this.own, this.#parts.selection.mechanism, readParams(this.#parts.selection.params)),
  )
  /** What the model supports, for each kind of its attention and for the open one. */
  readonly supports: readonly KindSupport[] = $derived.by(() => this.#parts.session.support[this.model] ?? [])
  readonly support: KindSupport | undefined = $derived.by(
    () => this.supports.find(({ kind }) => kind === this.#parts.selection.kind) ?? this.supports[0],
  )
  /** The lenses that the model supports. */
  readonly lenses: readonly Declaration[] = $derived.by(() =>
    carried(this.#parts.session.catalogue?.lenses, this.support?.lenses),
  )
  readonly lens: string = $derived.by(() => this.#firstOf([this.#parts.selection.lens]) || (this.lenses[0]?.name ?? ''))
  readonly other: string = $derived.by(() =>
    this.#firstOf([this.#parts.selection.other, ...BASE, ...this.lenses.map(({ name }) => name)], this.lens),
  )
  /** What the controls say that the pictures on screen do not show; undefined if they show all of it. */
  readonly changed: keyof Dependencies | undefined = $derived.by(() => {
    const { session, draft, selection } = this.#parts
    if (!session.shown || !this.#drawn) return undefined
    const kind = this.card?.kind ?? 'encoder'
    const now = this.#dependencies(
      draft.input(kind, this.upload),
      selection.with === 'text' ? draft.than : selection.than,
    )
    const [drawn, { analysis, second }] = [this.#drawn, session.shown]
    // Without a comparison on screen, or in the controls, the pictures do not depend on it.
    if (!second || selection.compare === 'off') now.Comparison = drawn.Comparison
    const differs = (Object.keys(now) as (keyof Dependencies)[]).find((part) => now[part] !== drawn[part])
    return differs ?? (analysis.lenses.includes(this.lens) || this.lens === '' ? undefined : 'Lens')
  })
  /** Nothing is on its way to the screen, so that what changed waits for the reader. */
  readonly waiting: boolean = $derived.by(
    () => this.changed !== undefined && !this.#preparing && !this.#parts.live.pending && !this.#parts.session.busy,
  )

  constructor(parts: PageState) {
    this.#parts = parts
  }

  #ownOf(model: string): Method {
    return trainedMechanism(this.#parts.session.catalogue?.models ?? [], model)
  }

  get #shown(): OpenAnalysis | undefined {
    return this.#parts.session.shown
  }

  /** The first of these lenses that is supported, except one. */
  #firstOf(names: readonly string[], but = ''): string {
    return names.find((name) => name !== but && this.lenses.some((item) => item.name === name)) ?? ''
  }

  #known(): Declaration[] {
    const measures = carried(this.#parts.session.catalogue?.measures, this.support?.measures)
    return measures.filter(({ name }) => this.#measured.has(name))
  }

  #dependencies(input: Input | undefined, than = this.#parts.selection.than): Dependencies {
    const { selection } = this.#parts
    return {
      Model: this.model,
      Mechanism: JSON.stringify([this.mechanism.name, Object.entries(this.mechanism.params).sort()]),
      Input: input ? JSON.stringify(input) : '',
      Attention: selection.kind,
      Lens: selection.lensparams,
      Comparison: comparisonKey({
        with: selection.with,
        compare: selection.compare,
        thanparams: selection.thanparams,
        than,
      }),
    }
  }

  #input(mask = this.#parts.selection.mask): Input | undefined {
    return buildInput(this.#parts.selection, this.card?.kind ?? 'encoder', this.upload, mask)
  }

  /** Undefined if the input is incomplete. */
  #request(mask: readonly number[]): Request | undefined {
    const { selection } = this.#parts
    const input = this.#input(mask)
    if (!input) return undefined
    const compared = selection.compare === 'off' ? '' : selection.other
    const read = this.lenses.filter(({ name }) => BASE.includes(name) || name === this.lens || name === compared)
    return {
      model: this.model,
      ...input,
      kind: selection.kind,
      mechanism: this.mechanism,
      lenses: read.map(({ name }): Method => ({ name, params: readParams(selection.paramsOf(name)) })),
      measures: this.#known().map(({ name }) => name),
    }
  }

  /** Request the selected lenses and measures that the analysis on screen lacks. */
  complete = (): void => {
    const { selection, comparisonRun } = this.#parts
    const now = this.#shown?.analysis
    const wants = selection.compare === 'off' || selection.with !== 'lens' ? [this.lens] : [this.lens, this.other]
    const compared = selection.compare === 'off' || comparisonRun.isFor(selection, this.#shown?.second, this.lens)
    const has = compared && wants.every((name) => now?.lenses.includes(name))
    if (!has || this.#known().some(({ name }) => !now?.measures.includes(name))) void this.analyse()
  }

  setLens = (name: string): void => {
    this.#parts.selection.set({ lens: name })
    this.complete()
  }

  moveLens = (step: number): void => {
    const at = this.lenses.findIndex(({ name }) => name === this.lens)
    const next = this.lenses[(at + step + this.lenses.length) % this.lenses.length]
    if (next) this.setLens(next.name)
  }

  /**
   * Request what the address says; the same request again only if the reader insists (`again`). `live`: while typing. `asGiven`: pins and
   * zoom are of the requested text already. `mask` is written into the address once its analysis is on screen.
   */
  async analyse(again = false, live = false, asGiven = false, mask = this.#parts.selection.mask): Promise<void> {
    const { selection, session, comparisonRun } = this.#parts
    selection.leave()
    // Without the catalogue nothing can be requested; `show` does it once it is loaded.
    if (!session.catalogue) return
    this.#preparing = true
    await session.learn(this.model)
    const wanted = this.#request(mask)
    const second = wanted && (await comparisonRun.request(wanted, selection, session))
    this.#preparing = false
    if (!wanted) return
    // If not all lenses fitted, another lens is another request.
    const key = JSON.stringify([wanted, second, this.#shown && isIncomplete(this.#shown.analysis) ? this.lens : ''])
    if (key === this.#asked && !again) return
    this.#asked = key
    const { lens } = this
    const before = this.#shown?.analysis
    const asked = this.#dependencies(this.#input(mask))
    this.adding = this.#additions(wanted, asked)
    const done = await session.submit(wanted, lens, live, second && (() => comparisonRun.ask(second, lens, live)))
    if (!session.busy) this.adding = []
    if (done) {
      this.#drawn = asked
      if (writeMask(mask) !== writeMask(selection.mask)) selection.set({ mask: writeMask(mask) }, 'push')
      // Of the first text, the address says what is pinned.
      if (before && !asGiven && !hasSameTokens(before, this.#shown?.analysis))
        selection.set({ pins: '', zoom: '' }, 'replace')
    } else if (this.#asked === key) this.#asked = ''
    if (done && this.upload) this.#keepImage()
  }

  /** The measures that this request adds, if it changes nothing else. */
  #additions({ lenses, measures }: Request, asked: Dependencies): string[] {
    const now = this.#shown?.analysis
    if (!now || JSON.stringify(asked) !== JSON.stringify(this.#drawn)) return []
    if (!lenses.every(({ name }) => now.lenses.includes(name))) return []
    return measures.filter((name) => !now.measures.includes(name))
  }

  /** From now on the address names the image, which is not uploaded again. */
  #keepImage(): void {
    this.upload = ''
    this.#asked = ''
    this.#parts.selection.set({ image: this.#shown?.analysis.image ?? '' }, 'push')
    this.#settle()
  }

  /** What is selected describes the analysis on screen. */
  #settle(): void {
    this.#drawn = this.#dependencies(this.#input())
  }

  choose = (patch: Patch): void => {
    this.endTyping()
    this.#parts.selection.set(patch, 'push')
    void this.analyse(true)
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
    const plain = [this.own, this.#ownOf(name)].every((own) => own.name === 'softmax')
    // Choosing the model of the comparison swaps the two.
    const { selection } = this.#parts
    const around = selection.with === 'model' && selection.than === name ? { than: this.model, thanparams: '' } : {}
    this.choose({ model: name, kind: '', mask: '', ...(plain ? {} : { mechanism: '', params: '' }), ...around })
  }

  /** Mask these tokens and no others. A refusal leaves the address as it is. */
  mask = (tokens: readonly number[]): void => {
    this.endTyping()
    void this.analyse(false, false, false, tokens)
  }

  /** Why no token of the input can be masked; empty if the model may have a mask token. */
  get unmaskable(): string {
    const kind = this.card?.kind
    if (kind === 'vision') return 'Patches of an image cannot be masked.'
    if (kind === 'encoder-decoder') return 'Only the tokens of a model with one text can be masked.'
    return this.#input()?.generate ? 'A text that the model continues cannot be masked.' : ''
  }

  /** Compare the masked text with itself, unmasked. */
  unmasked = (): void => {
    const { text, compare } = this.#parts.selection
    const shown = compare === 'off' ? 'side' : compare
    this.choose({ compare: shown, with: 'text', than: text, thanparams: '', twin: '' })
  }

  chooseMechanism = (name: string): void => {
    this.choose({ mechanism: name === this.own.name ? '' : name, params: '' })
  }

  type = (text: string, pair: string): void => {
    const { selection, live } = this.#parts
    // With a comparison, each pause would start two runs.
    if (comparisonKey(selection) !== '') return
    live.typed(text, pair, () => {
      if (text === selection.text && pair === selection.pair) return
      selection.set({ text, pair, ids: '', targets: '' }, this.#typing ? 'replace' : 'push')
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
    selection.adopt(shown.analysis, this.#ownOf(shown.analysis.model))
    if (this.lens !== shown.lens) selection.set({ lens: shown.lens }, 'replace')
    this.#settle()
  }

  /** Reopen an earlier analysis and describe it in the address. */
  async recall({ id }: Pick<Analysis, 'id'>): Promise<void> {
    this.endTyping()
    const shown = await this.#read(id)
    if (!shown) return
    this.#parts.selection.recall(shown.analysis, this.#ownOf(shown.analysis.model), shown.lens)
    this.#settle()
  }

  async #read(id: string): Promise<OpenAnalysis | undefined> {
    this.forget()
    if (!(await this.#parts.session.read(id, this.lens))) return undefined
    return this.#shown
  }

  /** Forget the last request, so that it can be repeated. */
  forget(): void {
    this.#asked = ''
  }
}
