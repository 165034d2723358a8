/** The input of a request: the selected fields that a model of this kind accepts. */
import type { ModelKind, Request } from '../lib/data/analysis'
import { readGenerate } from '../lib/data/generation'
import { parseIds } from '../lib/text/ids'
import { parseMessages } from '../lib/text/messages'
import type { Selection } from './selection.svelte'

export type Input = Pick<
  Request,
  'text' | 'textPair' | 'messages' | 'ids' | 'targetIds' | 'image' | 'generate' | 'maxTokens' | 'mask'
>

/** What a model reads: `both` is an image beside a text, for a decoder and for an encoder. */
export type Reads = ModelKind | 'both' | 'encoder-both'

export const readsBoth = (reads: Reads) => reads === 'both' || reads === 'encoder-both'

/** What a model of this kind reads, if it reads images too or does not. */
export function readsOf(kind: ModelKind, images: boolean): Reads {
  if (!images) return kind
  return kind === 'decoder' ? 'both' : kind === 'encoder' ? 'encoder-both' : kind
}

type InputFields = Pick<
  Selection,
  'text' | 'pair' | 'chat' | 'ids' | 'targets' | 'image' | 'generate' | 'most' | 'mask'
>

/** `upload` is an image that the source does not keep yet. Undefined if the input is incomplete. */
export function buildInput(
  selection: InputFields,
  reads: Reads,
  upload = '',
  mask = selection.mask,
): Input | undefined {
  const { text, pair } = selection
  const image = upload || selection.image
  const kind = reads === 'both' ? 'decoder' : reads === 'encoder-both' ? 'encoder' : reads
  if (kind === 'vision') return image ? { text: '', textPair: '', image } : undefined
  const messages = reads === 'decoder' && selection.chat !== '' ? parseMessages(selection.chat) : undefined
  const ids = messages ? undefined : parseIds(selection.ids)
  const targetIds = kind === 'encoder-decoder' && ids ? parseIds(selection.targets) : undefined
  const second = kind === 'decoder' || ids ? '' : pair
  const dictated = second !== '' || targetIds !== undefined
  const generate =
    kind === 'encoder' || (kind === 'encoder-decoder' && dictated) ? undefined : readGenerate(selection.generate)
  if (readsBoth(reads) && image && !ids) return { text, textPair: '', image, ...(generate ? { generate } : {}) }
  return {
    text: messages ? '' : text,
    textPair: second,
    ...(messages ? { messages } : {}),
    ...(ids ? { ids } : {}),
    ...(targetIds ? { targetIds } : {}),
    ...(generate ? { generate } : {}),
    ...(selection.most > 0 ? { maxTokens: selection.most } : {}),
    ...(mask.length > 0 && kind !== 'encoder-decoder' && !generate ? { mask } : {}),
  }
}
