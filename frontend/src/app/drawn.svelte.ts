/** What the pictures on screen depend on, and what the controls say that they do not show. */

import type { Chosen } from '../state/chosen.svelte'
import { comparisonKey } from '../state/comparison-run.svelte'
import { buildInput, type Input } from '../state/input'
import type { InputDraft } from '../state/input-draft.svelte'
import type { Selection } from '../state/selection.svelte'
import type { Session } from '../state/session.svelte'

/** Part by part, in words that a message can begin with. */
export type Dependencies = Record<'Model' | 'Mechanism' | 'Input' | 'Attention' | 'Lens' | 'Comparison', string>

interface Parts {
  selection: Selection
  chosen: Chosen
  draft: InputDraft
  session: Session
}

export class Drawn {
  /** An image that has not been uploaded yet. */
  upload = $state('')
  #now = $state.raw<Dependencies>()
  readonly #parts: Parts

  /** Undefined if the pictures show all that the controls say. */
  readonly changed: keyof Dependencies | undefined = $derived.by(() => {
    const { session, draft, selection, chosen } = this.#parts
    const drawn = this.#now
    if (!session.shown || !drawn) return undefined
    const now = this.#dependencies(
      draft.input(chosen.reads, this.upload),
      selection.with === 'text' ? draft.than : selection.than,
    )
    const { analysis, second } = session.shown
    // Without a comparison on screen, or in the controls, the pictures do not depend on it.
    if (!second || selection.compare === 'off') now.Comparison = drawn.Comparison
    const differs = (Object.keys(now) as (keyof Dependencies)[]).find((part) => now[part] !== drawn[part])
    return differs ?? (analysis.lenses.includes(chosen.lens) || chosen.lens === '' ? undefined : 'Lens')
  })

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** Undefined if the input is incomplete. */
  input(mask = this.#parts.selection.mask): Input | undefined {
    return buildInput(this.#parts.selection, this.#parts.chosen.reads, this.upload, mask)
  }

  /** What pictures of the selection depend on. */
  dependencies(mask = this.#parts.selection.mask): Dependencies {
    return this.#dependencies(this.input(mask), this.#parts.selection.than)
  }

  /** The pictures are those of this; by default, of the selection. */
  settle(now = this.dependencies()): void {
    this.#now = now
  }

  shows(wanted: Dependencies): boolean {
    return JSON.stringify(wanted) === JSON.stringify(this.#now)
  }

  #dependencies(input: Input | undefined, than: string): Dependencies {
    const { selection, chosen } = this.#parts
    const { with: what, compare, thanparams } = selection
    return {
      Model: chosen.model,
      Mechanism: JSON.stringify([chosen.mechanism.name, Object.entries(chosen.mechanism.params).sort()]),
      Input: input ? JSON.stringify(input) : '',
      Attention: selection.kind,
      Lens: selection.lensparams,
      Comparison: comparisonKey({ with: what, compare, thanparams, than }),
    }
  }
}
