import { describe, expect, it } from 'vitest'
import { fixedSource } from '../../gallery/source'
import type { Request, Token } from '../../src/lib/data/analysis'
import {
  leastAlike,
  mostAlike,
  pairAxis,
  pairedMap,
  pairedTokens,
  partialCosine,
  type TokenPair,
} from '../../src/lib/maths/alignment'
import type { Matrix } from '../../src/lib/maths/matrix'
import { otherHead } from '../../src/lib/maths/merge'
import { ComparisonRun, comparisonKey, comparisonRequest } from '../../src/state/comparison-run.svelte'
import { nameSides } from '../../src/state/comparison-side'
import { LinkedPointer } from '../../src/state/linked-pointer.svelte'
import { Pointer } from '../../src/state/pointer.svelte'
import { Selection } from '../../src/state/selection.svelte'
import { Session } from '../../src/state/session.svelte'
import { request } from '../support/request'

const token = (text: string, kind: Token['kind'] = 'word'): Token => ({
  text,
  id: 0,
  start: 0,
  end: 0,
  word: 0,
  segment: 0,
  kind,
})
/** `un·believ·able cat` against `unbelievable dog`; the first token has no counterpart. */
const tokens = [token('[CLS]', 'special'), token('un'), token('believ'), token('able'), token('cat')]
const pairs: TokenPair[] = [
  { tokens: [1, 2, 3], others: [0], text: 'unbelievable', otherText: 'Unbelievable' },
  { tokens: [4], others: [1], text: 'cat', otherText: 'dog' },
]

describe('alignment', () => {
  it('names both words where they differ, and gives tokens without a counterpart no place', () => {
    const axis = pairAxis(pairs, tokens)
    expect(axis.labels).toEqual(['unbelievable', 'cat/dog'])
    expect([...axis.of]).toEqual([-1, 0, 0, 0, 1])
    expect([...axis.start.slice(0, 2)]).toEqual([1, 4])
    expect(pairedTokens(axis, pairs, [0, 2, 3, 4])).toEqual([0, 1])
  })

  it('sums over the keys of a pair and averages over its queries', () => {
    const data = Float32Array.from({ length: 25 }, (_, i) => (i * 7) % 11)
    const map: Matrix = { data, rows: 5, cols: 5, exact: true }
    const at = (q: number, k: number) => data[q * 5 + k]
    const found = pairedMap(map, pairs, pairs)
    const expected = [
      [1, 2, 3].flatMap((q) => [1, 2, 3].map((k) => at(q, k))).reduce((a, b) => a + b) / 3,
      [1, 2, 3].map((q) => at(q, 4)).reduce((a, b) => a + b) / 3,
      [1, 2, 3].map((k) => at(4, k)).reduce((a, b) => a + b),
      at(4, 4),
    ]
    expect([...found.data].map((value) => value.toFixed(4))).toEqual(expected.map((value) => value.toFixed(4)))
  })

  it('leaves special tokens out of a cosine', () => {
    const map = (...data: number[]) => ({ data: Float32Array.from(data), rows: 2, cols: 2, exact: true })
    expect(partialCosine(map(9, 1, 9, 2), map(9, 1, 9, -2), [false, false], [true, false])).toBeCloseTo(-0.6, 6)
    expect(partialCosine(map(9, 1, 9, 2), map(9, 1, 9, -2), [true, true], [true, false])).toBeNull()
  })

  it('finds the heads that are most and least alike, past those without a number', () => {
    const cosine = [
      [0.5, null],
      [0.9, 0.1],
    ]
    expect(leastAlike(cosine, 2).map(({ value }) => value)).toEqual([0.1, 0.5])
    expect(mostAlike(cosine)).toEqual({ layer: 1, head: 0, value: 0.9 })
    expect(leastAlike([[null, 0.99999]], 5)).toEqual([])
  })
})

describe('what it is compared with', () => {
  const chosen = (fragment: string) => new Selection(fragment)

  it('is another analysis only where one is chosen', () => {
    expect(comparisonKey(chosen('compare=side'))).toBe('')
    expect(comparisonKey(chosen('with=text&than=+&compare=side'))).toBe('')
    expect(comparisonKey(chosen('with=mechanism&than=jump'))).toBe('')
    expect(comparisonKey(chosen('with=mechanism&than=jump&compare=difference'))).not.toBe('')
  })

  const softmax = { name: 'softmax', params: {} }
  const hopfield = { name: 'hopfield', params: { alpha: 0.7, initial: 'zero' } }
  const own = (name: string) => (name === 'twin' ? hopfield : softmax)
  const known = { own, support: undefined }

  it('attends as it was trained, unless another mechanism was chosen for the first', () => {
    const twin = chosen('with=model&than=twin&compare=side')
    expect(comparisonRequest(request, twin, known).mechanism).toEqual(hopfield)
    const jump = { name: 'jump', params: {} }
    expect(comparisonRequest({ ...request, mechanism: jump }, twin, known).mechanism).toEqual(jump)
    const first = { ...request, model: 'twin', mechanism: { ...hopfield, params: { initial: 'zero', alpha: 0.7 } } }
    expect(comparisonRequest(first, chosen('with=model&than=gpt&compare=side'), known).mechanism).toEqual(softmax)
    const again = chosen('with=mechanism&than=hopfield&thanparams=%7B%22alpha%22%3A0%7D&compare=side')
    expect(comparisonRequest(first, again, known).mechanism.params).toEqual({ alpha: 0, initial: 'zero' })
  })

  it('is asked for as the first but for one thing', () => {
    const jump = chosen('with=mechanism&than=jump&thanparams=%7B%22order%22%3A2%7D&compare=side')
    expect(comparisonRequest(request, jump, known)).toEqual({
      ...request,
      measures: [],
      mechanism: { name: 'jump', params: { order: 2 } },
    })
    const text = comparisonRequest(request, chosen('with=text&than=Four.&compare=side'), known)
    expect(text).toEqual({ ...request, measures: [], text: 'Four.' })
    const support = { kind: 'self', lenses: { effective: 'no values' }, mechanisms: {}, measures: {}, effects: {} }
    const model = comparisonRequest(request, chosen('with=model&than=gpt&compare=side'), { ...known, support })
    expect([model.model, model.lenses.map(({ name }) => name)]).toEqual(['gpt', ['weights']])
  })
})

async function compared(change: Partial<Request>, delayMs = 0) {
  const source = fixedSource(delayMs)
  const [session, run] = [new Session(source), new ComparisonRun(source, () => {})]
  const submitted = session.submit(request, 'weights', false, () =>
    run.ask({ ...request, ...change }, 'weights', false),
  )
  return { session, run, submitted }
}

describe('two analyses', () => {
  it('come on screen together', async () => {
    const { session, run, submitted } = await compared({ mechanism: { name: 'jump', params: {} } }, 30)
    expect(session.shown).toBeUndefined()
    expect(await submitted).toBe(true)
    expect([session.shown?.analysis.mechanism, session.shown?.second?.analysis.mechanism]).toEqual(['softmax', 'jump'])
    expect(run.error).toBe('')
    expect(session.shown?.comparison?.links).toBeNull()
  })

  it('differ by the second less the first', async () => {
    const { session, submitted } = await compared({ mechanism: { name: 'jump', params: {} } })
    await submitted
    const { maps, second, comparison } = session.shown!
    const head = { layer: 1, head: 2 }
    maps.wantMap('weights', head)
    second!.maps.wantMap('weights', head)
    await expect.poll(() => maps.map('weights', head)?.exact && second!.maps.map('weights', head)?.exact).toBe(true)
    const [one, other] = [maps.map('weights', head), second!.maps.map('weights', head)]
    const difference = comparison!.difference(one, other)
    expect(difference?.data[8]).toBeCloseTo(other!.data[8] - one!.data[8], 6)
    expect(comparison!.difference(one, other)).toBe(difference)
  })

  it('of which the second fails leave the first, and say why', async () => {
    const { session, run, submitted } = await compared({ text: ' ' })
    expect(await submitted).toBe(true)
    expect(session.shown?.second).toBeUndefined()
    expect(run.error).toBe('The comparison failed: The text is empty. Type a sentence.')
  })

  it('of two texts are linked by what stands for the same, and know when that is too little', async () => {
    const { session, submitted } = await compared({ text: 'One two new three.' })
    await submitted
    const comparison = session.shown!.comparison!
    expect(comparison.refusal).toBe('')
    const pointer = new Pointer(new Selection(), () => [9, 9])
    const there = new LinkedPointer(pointer, () => comparison.links)
    pointer.hover(3, 4)
    expect([there.lit.queries, there.lit.keys]).toEqual([[4], [5]])
    there.hover(4, null)
    expect([pointer.query, pointer.key]).toEqual([3, null])
    // A word that only the other text has is lit there and nowhere else.
    there.hover(3, null)
    expect([pointer.query, there.lit.queries]).toEqual([null, [3]])

    const unlike = await compared({ text: 'Nothing of the kind and much longer at that' })
    await unlike.submitted
    expect(unlike.session.shown!.comparison!.refusal).toContain('too few words in common')
  })
})

it('nothing is pointed at that the text on screen does not have', () => {
  let size: readonly [number, number] = [20, 20]
  const pointer = new Pointer(new Selection('pins=q1'), () => size)
  pointer.hover(12, 3)
  size = [5, 5]
  expect([pointer.query, pointer.key, pointer.queries, pointer.lit.keys]).toEqual([null, 3, [1], [3]])
})

describe('names', () => {
  it('say what tells two analyses apart', async () => {
    const source = fixedSource()
    const ask = (change: Partial<Request>) => source.submit({ ...request, ...change }, new AbortController().signal)
    const catalogue = await source.catalogue()
    const [one, jump, text] = await Promise.all([
      ask({ text: 'The boats lay by the river bank.' }),
      ask({ text: 'The boats lay by the river bank.', mechanism: { name: 'jump', params: { order: 2 } } }),
      ask({ text: 'The boats lay by the sandy bank.' }),
    ])
    expect(nameSides(one, jump, catalogue)).toEqual(['Softmax', 'Jump (order 2)'])
    expect(nameSides(one, text, catalogue)).toEqual(['“…the river bank.”', '“…the sandy bank.”'])
    const long = ['mischievous xylophonist', 'cheerful xylophonist'].map((end) => ({
      ...one,
      text: `The unbelievably ${end}`,
    }))
    expect(nameSides(long[0], long[1], catalogue)).toEqual(['“…mischievous …”', '“…cheerful xylophonist”'])
  })
})

describe('two heads of one analysis', () => {
  const analysis = { layers: 2, heads: 3, subset: null }

  it('takes another selected head, otherwise a neighbour, otherwise the only head', () => {
    const open = { layer: 1, head: 2 }
    expect(otherHead(open, [open, { layer: 0, head: 0 }], analysis)).toEqual({ layer: 0, head: 0 })
    expect(otherHead(open, [], analysis)).toEqual({ layer: 1, head: 1 })
    expect(otherHead({ layer: 0, head: 0 }, [], { layers: 1, heads: 1, subset: null })).toEqual({ layer: 0, head: 0 })
  })

  it('needs no second analysis, so a shared link keeps it', () => {
    const chosen = new Selection('head=3.1&with=head&than=4.5&compare=side')
    expect(comparisonKey(chosen)).toBe('')
    expect(chosen.linkTo('abc', 'key')).toContain('with=head&than=4.5')
    expect(chosen.hasMore).toBe(false)
    const others = new Selection('with=model&than=vit&compare=side')
    expect([others.linkTo('abc', 'key'), others.hasMore]).toEqual(['#analysis=abc&share=key', true])
  })
})
