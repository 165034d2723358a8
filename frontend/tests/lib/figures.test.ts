import { describe, expect, it } from 'vitest'
import { fixedFigures } from '../../gallery/figures'
import { ofLayer, openFigures, readCsv, sentenceOf } from '../../src/lib/data/figures'

describe('figures', () => {
  it('opens what the address names and there is, in the order of the list', async () => {
    const known = await fixedFigures.list()
    expect(openFigures('rank,nothing,entropy', known).map(({ name }) => name)).toEqual(['entropy', 'rank'])
    expect(openFigures('', known)).toEqual([])
  })

  it('knows which figures can be drawn for the heads of a layer, and for which lenses', async () => {
    const known = await fixedFigures.list()
    expect(known.filter(ofLayer).map(({ name }) => name)).toEqual(['entropy'])
    expect(known.find(({ name }) => name === 'residual_ratio')?.lenses).toEqual([])
    expect(known.find(({ name }) => name === 'patterns')?.lenses).toContain('effective')
  })

  it('says a figure in words, and nothing where it has none', async () => {
    const asked = { name: 'entropy', params: { lens: 'weights', layer: 4 }, theme: 'dark' } as const
    const figure = await fixedFigures.draw('', asked, new AbortController().signal)
    expect(sentenceOf(figure)).toMatch(/^Median entropy \(nats\) in layer 4, head 0 to 11: /)
    expect(sentenceOf({ data: [], layout: {} })).toBe('')
  })

  it('reads cells in quotes, which texts may be', () => {
    expect(readCsv('row,text\n1,"He said ""no"", and\nleft"\n2,\n')).toEqual([
      ['row', 'text'],
      ['1', 'He said "no", and\nleft'],
      ['2', ''],
    ])
  })

  it('reads numbers as rows', () => {
    expect(readCsv('layer,head\n0,\n1,2\n')).toEqual([
      ['layer', 'head'],
      ['0', ''],
      ['1', '2'],
    ])
  })
})
