/** A study in preparation: its data set, as parsed by the server, and all other choices. */
import type { Declaration, KindSupport, Method } from '../../lib/data/analysis'
import { readLines, readOutput } from '../../lib/data/effects'
import { resolveMechanism } from '../../lib/data/mechanism'
import { type Params, pickParams, replaceParams } from '../../lib/data/params'
import type { Dataset, DatasetItem, ParseOptions, Studies, StudyRequest } from '../../lib/data/studies'
import { missingInStudies, needsReference, type StudyTexts, studyMethod, USUAL } from '../../lib/data/study-effects'
import { latest } from '../../lib/net/latest'
import type { StudySelection } from './selection.svelte'

/** The figure of effects. */
const EFFECTS = 'effects'

export type Against = 'nothing' | 'mechanism' | 'model'

const START = {
  dataset: '',
  format: '',
  columns: {} as Record<string, string>,
  model: '',
  /** Empty for the mechanism that each model was trained with, without parameters. */
  mechanism: '',
  params: {} as Params,
  /** How the second variant differs from the first. */
  against: 'nothing' as Against,
  than: '',
  thanParams: {} as Params,
  figures: ['pattern-shares', 'entropy', 'special-maps'],
  lenses: [] as string[],
  measures: [] as string[],
  /** Methods for effects of heads, and their parameters by method as JSON. */
  effects: [] as string[],
  effectParams: '',
  /** What inputs whose row names no target are judged by, as typed: a token, what is subtracted, and where; empty for the defaults. */
  target: '',
  minus: '',
  position: '',
  /** Reference texts of ablation, one per line. */
  reference: '',
  /** Empty for all rows. */
  limit: '',
  seed: '0',
  /** Empty for no limit. */
  maxTokens: '',
  badRows: 'skip' as 'skip' | 'fail',
}
type Choices = typeof START
type Picked = Pick<Choices, 'figures' | 'lenses' | 'measures'>

export class Draft {
  /** The latest answer of the server, and the id that was asked for. */
  #parsed = $state.raw<{ id: string; dataset: Dataset }>()
  known = $state.raw<DatasetItem[]>([])
  /** Why the data set cannot be read or the study not be started. */
  error = $state('')
  /** The current activity: a data set is read, or the study is being started. */
  busy = $state('')
  /** The upload: its size in bytes, and how many have been sent. */
  sending = $state.raw<{ file: File; sent: number }>()
  /** What the first model supports, once known. */
  support = $state.raw<KindSupport>()
  choices: Choices = $derived.by(() => ({ ...START, ...readDraft(this.selection.draft) }))
  /** The chosen data set, once the server has parsed it. */
  dataset: Dataset | undefined = $derived.by(() =>
    this.#parsed?.id === this.choices.dataset ? this.#parsed.dataset : undefined,
  )
  #read = latest((signal, id: string, reading: ParseOptions) => this.studies.dataset(id, reading, signal))
  #ask = latest((_signal, model: string) => this.supportOf(model))
  #send = latest((signal, file: File) => this.studies.upload(file, signal, (sent) => this.#sent(file, sent)))

  constructor(
    readonly studies: Studies,
    private readonly selection: StudySelection,
    private readonly supportOf: (model: string) => Promise<KindSupport[]>,
    private readonly fail: (error: unknown) => string,
  ) {}

  set(patch: Partial<Choices>): void {
    const changed = Object.entries({ ...this.choices, ...patch }).filter(
      ([name, value]) => JSON.stringify(value) !== JSON.stringify(START[name as keyof Choices]),
    )
    this.selection.set({ draft: changed.length === 0 ? '' : JSON.stringify(Object.fromEntries(changed)) }, 'replace')
  }

  /** The methods for effects that are computed: those chosen, or the usual one if the figure of effects is. */
  get judges(): readonly string[] {
    const { effects, figures } = this.choices
    return effects.length === 0 && figures.includes(EFFECTS) ? [USUAL] : effects
  }

  /** Choose the methods for effects, and the figure of them. */
  judge(effects: string[]): void {
    const others = this.choices.figures.filter((name) => name !== EFFECTS)
    this.set({ effects, figures: effects.length > 0 ? [...others, EFFECTS] : others })
  }

  effectParamsOf = (method: string): string => pickParams(this.choices.effectParams, method)

  setEffectParams(method: string, params: string): void {
    this.set({ effectParams: replaceParams(this.choices.effectParams, method, params) })
  }

  /** The texts beside those of the inputs: every input has another one for patching if a column is chosen for it. */
  get texts(): StudyTexts {
    return { paired: 'against' in (this.dataset?.chosen ?? {}), reference: readLines(this.choices.reference) }
  }

  /** What has to be chosen for the effects, among these methods; empty if nothing has. */
  missing(methods: readonly Declaration[]): string {
    const said = this.#chosen(methods).map((method) =>
      missingInStudies(method, this.effectParamsOf(method.name), this.texts),
    )
    return said.find(Boolean) ?? ''
  }

  /** Whether one of the chosen among these methods needs reference texts. */
  needsReference(methods: readonly Declaration[]): boolean {
    return this.#chosen(methods).some((method) => needsReference(method, this.effectParamsOf(method.name), this.texts))
  }

  #chosen(methods: readonly Declaration[]): Declaration[] {
    return methods.filter(({ name }) => this.judges.includes(name))
  }

  /** Look up what a model supports. */
  async ask(model: string): Promise<void> {
    await this.#beside(async () => {
      this.support = (await this.#ask(model))?.[0] ?? this.support
    })
  }

  /** Look up the data sets of the server, and how it parses the chosen one. */
  async learn(): Promise<void> {
    await Promise.all([
      this.#beside(async () => {
        this.known = await this.studies.datasets()
      }),
      this.look(),
    ])
  }

  async take(file: File): Promise<void> {
    this.#sent(file, 0)
    await this.#try('', async () => {
      const dataset = await this.#send(file)
      if (!dataset) return
      this.#parsed = { id: dataset.id, dataset }
      this.set({ dataset: dataset.id, format: '', columns: {} })
      this.known = await this.studies.datasets()
    })
    // Another file may have replaced it.
    if (this.sending?.file === file) this.sending = undefined
  }

  /** Abort the upload; the previous data set stays. */
  keep(): void {
    this.#send.stop()
  }

  #sent(file: File, sent: number): void {
    this.sending = { file, sent }
  }

  choose(id: string): Promise<void> {
    this.set({ dataset: id, format: '', columns: {} })
    return this.look()
  }

  /** Correct a column or the format. */
  readAs(reading: Partial<ParseOptions>): Promise<void> {
    this.set(reading)
    return this.look()
  }

  /** Parse the data set again; the previous preview stays until the new one arrives. */
  async look(): Promise<void> {
    const { dataset: id, format, columns } = this.choices
    if (id === '') return
    await this.#try('Reading the data set \u2026', async () => {
      const dataset = await this.#read(id, { format, columns })
      if (dataset) this.#parsed = { id, dataset }
    })
  }

  /** Look something up while another task may run, which keeps what it says. */
  async #beside(what: () => Promise<void>): Promise<void> {
    try {
      await what()
    } catch (error) {
      this.error = this.fail(error)
    }
  }

  /** Returns whether the task succeeded; `busy` names it while it runs. */
  async #try(busy: string, what: () => Promise<void>): Promise<boolean> {
    this.error = ''
    this.busy = busy
    try {
      await what()
      return true
    } catch (error) {
      this.error = this.fail(error)
      return false
    } finally {
      this.busy = ''
    }
  }

  /** Start the study with `model`, chosen or the server's default, its trained mechanism `own`, the chosen ones of `effects`, and what is `picked`; returns the id, or undefined if it was refused. */
  async start(
    model: string,
    own: Method,
    effects: readonly Declaration[],
    picked: Picked = this.choices,
  ): Promise<string | undefined> {
    let id: string | undefined
    await this.#try('Starting \u2026', async () => {
      id = (await this.studies.start(this.#request(model, own, effects, picked))).id
    })
    return id
  }

  #request(model: string, own: Method, effects: readonly Declaration[], picked: Picked): StudyRequest {
    const { choices: now, judges } = this
    const typed = judges.length > 0 ? [now.target, now.minus] : []
    const first = now.mechanism === '' ? null : resolveMechanism(own, now.mechanism, now.params)
    const other =
      now.against === 'mechanism'
        ? { model, mechanism: resolveMechanism(own, now.than, now.thanParams) }
        : { model: now.than, mechanism: first }
    return {
      dataset: now.dataset,
      reading: { format: now.format, columns: now.columns },
      model,
      mechanism: first,
      against: now.against === 'nothing' || now.than === '' ? null : other,
      lenses: picked.lenses,
      measures: picked.measures,
      effects: this.#chosen(effects).flatMap(
        (method) => studyMethod(method, this.effectParamsOf(method.name), this.texts) ?? [],
      ),
      target: typed.flatMap((text) => readOutput(text, []) ?? []),
      position: judges.length > 0 ? integerOf(now.position) : null,
      reference: this.needsReference(effects) ? this.texts.reference : [],
      figures: picked.figures,
      limit: countOf(now.limit),
      seed: Math.max(0, Math.trunc(Number(now.seed)) || 0),
      maxTokens: countOf(now.maxTokens),
      badRows: now.badRows,
    }
  }
}

/** A count as typed; null for none. */
export function countOf(text: string): number | null {
  const count = integerOf(text)
  return count !== null && count >= 1 ? count : null
}

/** An integer as typed; null for none. */
function integerOf(text: string): number | null {
  const number = Number(text)
  return text.trim() !== '' && Number.isInteger(number) ? number : null
}

function readDraft(text: string): Partial<Choices> {
  try {
    const found: unknown = JSON.parse(text)
    return typeof found === 'object' && found !== null ? wellFormed(found as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

/** The fields of a draft in the address that have the right type, so that a bad link never breaks the page. */
function wellFormed(found: Record<string, unknown>): Partial<Choices> {
  const kept = Object.entries(found).filter(([name, value]) => {
    const wanted = START[name as keyof Choices] as unknown
    return wanted !== undefined && typeof value === typeof wanted && Array.isArray(value) === Array.isArray(wanted)
  })
  return Object.fromEntries(kept)
}
