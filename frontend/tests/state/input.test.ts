import { describe, expect, it } from 'vitest'
import { fixedTokens } from '../../gallery/source'
import {
  countNewTokens,
  readGenerate,
  samplingSchema,
  withNewTokens,
  withSampling,
} from '../../src/lib/data/generation'
import { readFile } from '../../src/lib/net/files'
import { parseIds, writeIds } from '../../src/lib/text/ids'
import { countPieces, isShort } from '../../src/lib/text/length'
import { parseMessages, writeMessages } from '../../src/lib/text/messages'
import { buildInput, readsBoth, readsOf } from '../../src/state/input'
import { Selection } from '../../src/state/selection.svelte'

const chosen = (fields: Record<string, string>) => new Selection(new URLSearchParams(fields).toString())

describe('token ids', () => {
  it.each([
    ['101 2023 102', [101, 2023, 102]],
    ['[101, 2023,\n102]', [101, 2023, 102]],
    [' 0 ', [0]],
  ])('reads %j', (text, ids) => expect(parseIds(text)).toEqual(ids))

  it.each(['', ' , ', '1 two 3', '1.5', '-1', '99999999'])('takes no %j', (text) =>
    expect(parseIds(text)).toBeUndefined(),
  )

  it('writes what it reads', () => expect(parseIds(writeIds([5, 6, 7]))).toEqual([5, 6, 7]))
})

describe('a conversation as text', () => {
  it.each([
    ['user: Hi', [{ role: 'user', content: 'Hi' }]],
    ['Hi\nthere', [{ role: 'user', content: 'Hi\nthere' }]],
    ['system: Be\nbrief.\nuser:Hi\nassistant: ', undefined],
    ['', undefined],
  ])('is read from %j', (text, messages) => expect(parseMessages(text)).toEqual(messages))

  it.each([
    [['user', 'Hi']],
    [
      ['system', ' two\n\nlines '],
      ['user', 'A\nuser: B\n\\assistant: C\n\\D'],
      ['assistant', 'user: E'],
      ['user', '\nF\n'],
    ],
  ] as const)('is written so that %j comes back', (...said) => {
    const messages = said.map(([role, content]) => ({ role, content }))
    expect(parseMessages(writeMessages(messages))).toEqual(messages)
  })
})

describe('what the model writes', () => {
  it('is a number of tokens, and nothing for none', () => {
    expect(withNewTokens('', 20)).toBe('{"max_new_tokens":20}')
    expect(countNewTokens(withNewTokens('', 20))).toBe(20)
    expect(withNewTokens('{"max_new_tokens":20}', 0)).toBe('')
    expect(countNewTokens('not JSON')).toBe(0)
    expect(countNewTokens(withNewTokens('', 1e9))).toBe(4096)
  })

  it('says how to draw only where something is drawn', () => {
    const drawn = withSampling('{"max_new_tokens":20}', '{"do_sample":true,"temperature":0.7,"max_new_tokens":1}')
    expect(readGenerate(drawn)).toEqual({ max_new_tokens: 20, do_sample: true, temperature: 0.7 })
    expect(Object.keys(samplingSchema(drawn).properties)).toContain('top_p')
    expect(readGenerate('{"max_new_tokens":20,"temperature":0.7}')).toEqual({ max_new_tokens: 20 })
    expect(readGenerate('')).toBeUndefined()
  })
})

describe('what is put into a model', () => {
  const all = chosen({ text: 'A', pair: 'B', image: 'sha256:0', generate: '{"max_new_tokens":5}' })
  const numbers = chosen({ text: 'A', pair: 'B', ids: '1 2', targets: '3' })

  it('is what a model of its kind takes', () => {
    expect(buildInput(all, 'encoder')).toEqual({ text: 'A', textPair: 'B' })
    expect(buildInput(all, 'decoder')).toEqual({ text: 'A', textPair: '', generate: { max_new_tokens: 5 } })
    expect(buildInput(all, 'encoder-decoder')).toEqual({ text: 'A', textPair: 'B' })
    expect(buildInput(all, 'vision')).toEqual({ text: '', textPair: '', image: 'sha256:0' })
    const spoken = chosen({ text: 'A', chat: 'user: B', ids: '1' })
    expect(buildInput(spoken, 'decoder')).toEqual({
      text: '',
      textPair: '',
      messages: [{ role: 'user', content: 'B' }],
    })
    expect(buildInput(chosen({ text: 'A', chat: 'user: B' }), 'encoder')).toEqual({ text: 'A', textPair: '' })
    expect(buildInput(numbers, 'encoder')).toEqual({ text: 'A', textPair: '', ids: [1, 2] })
    expect(buildInput(numbers, 'encoder-decoder')).toEqual({ text: 'A', textPair: '', ids: [1, 2], targetIds: [3] })
  })

  it('is nothing where a model that sees has no image, and the newest image where there are two', () => {
    expect(buildInput(chosen({ text: 'A' }), 'vision')).toBeUndefined()
    expect(buildInput(all, 'vision', 'data:new')?.image).toBe('data:new')
    const both = { text: 'A', textPair: '', image: 'sha256:0', generate: { max_new_tokens: 5 } }
    expect(buildInput(all, 'both')).toEqual(both)
    expect(buildInput(chosen({ text: 'A', mask: '1' }), 'both')).toEqual(
      buildInput(chosen({ text: 'A', mask: '1' }), 'decoder'),
    )
  })
})

describe('an image beside a text', () => {
  it('is read by decoders and encoders that read images, which take no second text with it', () => {
    const given = chosen({ text: 'A', pair: 'B', image: 'sha256:0' })
    expect(readsOf('encoder', true)).toBe('encoder-both')
    expect(buildInput(given, readsOf('encoder', true))).toEqual({ text: 'A', textPair: '', image: 'sha256:0' })
    expect(buildInput(chosen({ text: 'A', pair: 'B' }), readsOf('encoder', true))).toEqual({ text: 'A', textPair: 'B' })
    expect(buildInput(given, readsOf('encoder', false))).toEqual({ text: 'A', textPair: 'B' })
    expect(readsBoth(readsOf('decoder', true))).toBe(true)
    expect(readsOf('vision', true)).toBe('vision')
  })
})

describe('files', () => {
  const file = (parts: BlobPart[], type = 'text/plain') => new File(parts, 'a.txt', { type })

  it('are texts without the last line break', async () => {
    expect(await readFile(file(['Zo\u00eb\nsaw it.\n']))).toEqual({ text: 'Zo\u00eb\nsaw it.' })
    expect(await readFile(file(['a,b\n'], 'text/csv'))).toEqual({ text: 'a,b' })
  })

  it.each([
    ['another encoding', file([Uint8Array.of(0xff, 0xfe, 0x41, 0)]), /UTF-8/],
    ['a program', file([Uint8Array.of(0x7f, 0x45, 0x4c, 0x46, 0, 0)], ''), /UTF-8/],
    ['a book', file(['x'.repeat(1024 * 1024 + 1)]), /up to 1 MiB/],
    ['an animation', file([Uint8Array.of(1)], 'image/gif'), /PNG, JPEG or WebP/],
    ['a poster', file([new Uint8Array(10_000_001)], 'image/png'), /Scale it down/],
  ])('are refused with a sentence: %s', async (_, given, sentence) => {
    await expect(readFile(given)).rejects.toThrow(sentence)
  })
})

describe('texts that are short enough to be live', () => {
  it('counts words, pieces of long ones, signs, and letters of scripts without spaces', () => {
    expect(countPieces('The cat sat.')).toBe(4)
    expect(countPieces('internationalisation')).toBe(3)
    expect(countPieces('\u6211\u7231\u5317\u4eac')).toBe(4)
    expect(countPieces('')).toBe(0)
  })

  it('draws the line near 64 tokens', () => {
    expect(isShort('The cat sat. '.repeat(15), '')).toBe(true)
    expect(isShort('The cat sat. '.repeat(16), '')).toBe(false)
    expect(isShort('The cat sat. '.repeat(10), 'The cat sat. '.repeat(10))).toBe(false)
    // The count is of what tokenizers make of plain words.
    expect(countPieces('The boats lay by the river bank.')).toBe(
      fixedTokens('The boats lay by the river bank.').length - 2,
    )
  })
})
