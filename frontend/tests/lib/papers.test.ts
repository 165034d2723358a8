import { describe, expect, it } from 'vitest'
import { linkPapers } from '../../src/lib/text/papers'

describe('the papers of a citation', () => {
  it('have links, and everything between them stays as it is', () => {
    const citation = 'Sun & Marasović 2021, sec. 3.2 and fig. 1; after Kovaleva et al. 2019, sec. 4.4'
    const parts = linkPapers(citation)
    expect(parts.map(({ text }) => text).join('')).toBe(citation)
    expect(parts.filter(({ url }) => url)).toEqual([
      { text: 'Sun & Marasović 2021', url: 'https://arxiv.org/abs/2105.08855' },
      { text: 'Kovaleva et al. 2019', url: 'https://arxiv.org/abs/1908.08593' },
    ])
  })

  it('tell the papers of one group apart by year', () => {
    const url = (citation: string) => linkPapers(citation)[0].url
    expect(url('Kobayashi et al. 2020, Attention is Not Only a Weight, sec. 2')).toMatch('2004.10102')
    expect(url('Kobayashi et al. 2021, Incorporating Residual')).toMatch('2109.07152')
  })

  it('are named without a link where none is known', () => {
    expect(linkPapers('Jump Self-attention, eq. 4')).toEqual([{ text: 'Jump Self-attention, eq. 4', url: '' }])
  })
})
