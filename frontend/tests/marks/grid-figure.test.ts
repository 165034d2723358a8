import { describe, expect, it } from 'vitest'
import { type GridContent, printGrid } from '../../src/marks/grid-figure'
import type { GridLayout } from '../../src/marks/grid-painter'

const layout: GridLayout = { layers: 2, heads: 2, cell: 30, gap: 2 }
const scale = { kind: 'linear', signed: false, max: 1 } as const
const values = [
  [0.1, 0.2],
  [0.3, 0.4],
]
const print = (content: Partial<GridContent>) =>
  printGrid(layout, { values, unit: 'entropy in nats', scale, ...content }, 1, false)

describe('a printed grid', () => {
  it('says by what it is coloured, in which unit', () => {
    const { title, note, legend } = print({})
    expect(title).toBe('All heads')
    expect(note).toContain('coloured by its entropy in nats.')
    expect(legend?.unit).toBe('entropy in nats')
    expect(print({ unit: 'ablation in logits', about: ' on “ is” at token 4' }).note).toContain(
      'coloured by its ablation in logits on “ is” at token 4.',
    )
  })

  it('says which layers it has', () => {
    expect(print({ title: 'Heads of layers 1 to 2' }).title).toBe('Heads of layers 1 to 2')
  })

  it('has a key if patterns are marked', () => {
    const plain = print({})
    const classes = [
      ['vertical', 'vertical'],
      ['diagonal', null],
    ]
    const marked = print({ overlay: { classes } })
    expect(marked.layers).toHaveLength(plain.layers.length + 1)
    expect(marked.height).toBeGreaterThan(plain.height)
  })
})
