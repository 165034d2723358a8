import { describe, expect, it } from 'vitest'
import {
  allLayers,
  chooseEnd,
  effectiveRange,
  inRange,
  outsideSentence,
  parseLayers,
  withinRange,
} from '../../src/lib/data/layer-range'

const deep = { layers: 30, heads: 2, subset: null }

describe('a range of layers', () => {
  it('is two layers in any order, or one, or nothing', () => {
    expect(parseLayers('8-15')).toEqual({ first: 8, last: 15 })
    expect(parseLayers('15-8')).toEqual({ first: 8, last: 15 })
    expect(parseLayers('3')).toEqual({ first: 3, last: 3 })
    for (const text of ['', '-3', '3-', 'a-b', '1-2-3', '1.5-2', '1234-1235']) expect(parseLayers(text)).toBeUndefined()
  })

  it('has no effect if it leaves out all layers or none', () => {
    expect(effectiveRange(deep, { first: 8, last: 15 })).toEqual({ first: 8, last: 15 })
    expect(effectiveRange(deep, { first: 0, last: 29 })).toBeUndefined()
    expect(effectiveRange(deep, { first: 30, last: 40 })).toBeUndefined()
    expect(effectiveRange(deep, undefined)).toBeUndefined()
  })

  it('is of the layers that were analysed', () => {
    const some = { layers: 8, heads: 6, subset: { layers: [1, 5, 7], heads: [2, 5] } }
    expect(allLayers(some)).toEqual([1, 5, 7])
    expect(withinRange(some, { first: 4, last: 9 })).toEqual({ layers: [5, 7], heads: [2, 5] })
    expect(withinRange(some, undefined)).toBe(some.subset)
    expect(withinRange(deep, { first: 28, last: 40 })).toEqual({ layers: [28, 29], heads: [0, 1] })
    expect(withinRange(deep, undefined)).toBeNull()
  })

  it('moves its other end along', () => {
    const layers = allLayers(deep)
    expect(chooseEnd(layers, { first: 8, last: 15 }, 'first', 10)).toBe('10-15')
    expect(chooseEnd(layers, { first: 8, last: 15 }, 'first', 20)).toBe('20-20')
    expect(chooseEnd(layers, { first: 8, last: 15 }, 'last', 3)).toBe('3-3')
    expect(chooseEnd(layers, { first: 0, last: 15 }, 'last', 29)).toBe('')
  })

  it('counts what it leaves out', () => {
    const range = { first: 1, last: 2 }
    const heads = [0, 1, 2, 3].map((layer) => ({ layer, head: 0 }))
    expect(heads.filter((head) => inRange(range, head))).toEqual(heads.slice(1, 3))
    expect(outsideSentence(range, { found: heads, selected: heads.slice(0, 2), open: heads[3] })).toBe(
      'Not shown: 2 found heads, 1 selected head, the open head 3.0.',
    )
    expect(outsideSentence(range, { found: [], selected: [], open: heads[1] })).toBe('')
    expect(outsideSentence(undefined, { found: heads, selected: heads, open: heads[0] })).toBe('')
  })
})
