/** What is typed into the input boxes and may not have been analysed yet. An example or the back button replaces it. */
import type { Analysis, Token } from '../lib/data/analysis'
import { parseIds, writeIds } from '../lib/text/ids'
import { parseMessages, writeMessages } from '../lib/text/messages'
import { buildInput, type Input, type Reads } from './input'
import type { Selection } from './selection.svelte'

export class InputDraft {
  readonly #selection: Selection
  text = $derived.by(() => this.#selection.text)
  pair = $derived.by(() => this.#selection.pair)
  /** Any other input, such as an example, replaces what is typed in place of a text. */
  readonly #chosen = $derived.by(() => {
    const { text, pair, chat, ids, targets } = this.#selection
    return { text, pair, chat, ids, targets }
  })
  chat = $derived.by(() => this.#chosen.chat)
  ids = $derived.by(() => this.#chosen.ids)
  targets = $derived.by(() => this.#chosen.targets)
  /** The other text of a comparison. */
  than = $derived.by(() => this.#selection.than)
  /** Whether token ids are entered instead of a text. */
  byIds = $derived.by(() => this.#chosen.ids !== '')
  /** Whether a conversation is entered instead of a text. */
  byChat = $derived.by(() => this.#chosen.chat !== '')
  /** The ids with which the boxes were filled. */
  #filled = ''

  constructor(selection: Selection) {
    this.#selection = selection
  }

  /** Switch between the text and its token ids, at first those of the text on screen. `pairs`: the decoder has tokens of its own. */
  switchIds(shown: Analysis | undefined, pairs: boolean): void {
    this.byIds = !this.byIds
    this.byChat = false
    if (!this.byIds || this.ids || !shown) return
    const numbers = (tokens: readonly Token[]) => writeIds(tokens.map(({ id }) => id))
    this.ids = numbers(shown.keyTokens)
    this.targets = pairs && shown.keyTokens !== shown.tokens ? numbers(shown.tokens) : ''
    this.#filled = this.ids + this.targets
  }

  /** Switch between a text and a conversation, which begins with the text. */
  switchChat(): void {
    this.byChat = !this.byChat
    this.byIds = false
    if (this.byChat && this.chat === '') this.chat = writeMessages([{ role: 'user', content: this.text }])
  }

  /** The input as it would be submitted now; undefined if it is incomplete. `upload` is an image that the source does not keep yet. */
  input(kind: Reads, upload: string): Input | undefined {
    const { text, pair, image, generate, most, mask, ids } = this.#selection
    const chosen = { text, pair, chat: '', ids: '', targets: '', image, generate, most, mask }
    if (kind === 'vision') return buildInput(chosen, kind, upload)
    if (this.byChat && kind === 'decoder')
      return parseMessages(this.chat) && buildInput({ ...chosen, chat: this.chat }, kind)
    if (this.byIds) {
      // Boxes that are as they were filled hold the ids of the text on screen.
      if (ids === '' && this.ids + this.targets === this.#filled) return buildInput(chosen, kind)
      return parseIds(this.ids) && buildInput({ ...chosen, ids: this.ids, targets: this.targets }, kind)
    }
    return this.text.trim() === ''
      ? undefined
      : buildInput({ ...chosen, text: this.text, pair: this.pair }, kind, upload)
  }
}
