import { afterEach, describe, expect, it, vi } from 'vitest'
import { linkProblem } from '../../src/lib/net/fragment'
import { addressFields, choice, flag, head, headList, integer, number, text } from '../../src/state/fields.svelte'
import { Selection } from '../../src/state/selection.svelte'

class Fields extends addressFields({
  name: text('weights'),
  view: choice('both', 'map'),
  marked: flag(),
  mass: number('0.7', 0.05, 1),
  k: integer('', 0, 64),
  open: head(),
  heads: headList(3),
}) {
  constructor(fragment: string) {
    super()
    this.read(fragment)
  }

  fragment(patch = {}): string {
    return this.encode(patch)
  }
}

describe('address fields', () => {
  it('have their initial values without a fragment', () => {
    const { name, view, marked, mass, k, open, heads } = new Fields('')
    expect({ name, view, marked, mass, k, open, heads }).toEqual({
      name: 'weights',
      view: 'both',
      marked: false,
      mass: 0.7,
      k: 0,
      open: undefined,
      heads: [],
    })
  })

  it('are parsed, clamped and bounded', () => {
    const fields = new Fields('#view=map&marked=yes&mass=3&k=2.6&open=1.2&heads=0.1+0.2+x+0.3+0.4')
    expect([fields.view, fields.marked, fields.mass, fields.k]).toEqual(['map', true, 1, 3])
    expect(fields.open).toEqual({ layer: 1, head: 2 })
    expect(fields.heads.map(({ head }) => head)).toEqual([1, 2, 3])
  })

  it('fall back to their initial values where the text is invalid', () => {
    const fields = new Fields('view=wheel&mass=much&open=one&heads=0.1')
    expect([fields.view, fields.mass, fields.open, fields.heads]).toEqual(['both', 0.7, undefined, []])
  })

  it('are written as they were given, and only where they differ', () => {
    const fields = new Fields('view=both&mass=3&unknown=1')
    expect(fields.fragment()).toBe('mass=3')
    expect(fields.fragment({ mass: '0.7', name: 'a b' })).toBe('name=a+b')
  })
})

describe('a selection', () => {
  afterEach(() => void vi.unstubAllGlobals())

  it('keeps a text out of the address that is too long for it, and has no link then', () => {
    vi.stubGlobal('location', { hash: '', href: 'http://localhost/' })
    vi.stubGlobal('history', { state: null, pushState: () => {} })
    vi.stubGlobal('dispatchEvent', () => true)
    const selection = new Selection('text=short')
    expect([selection.link, linkProblem(selection.link)]).toEqual(['text=short', ''])
    selection.set({ text: '\u0441\u043b\u043e\u0432\u043e '.repeat(10_000) }, 'push')
    expect(selection.fragment).toBe('text=short')
    expect(linkProblem(selection.link)).toContain('too long for a link')
  })

  it('fits into an exported page, without notes if they are too long', () => {
    const notes = (length: number) => JSON.stringify({ 'minilm/self': { '1.0': 'n'.repeat(length) } })
    const view = (length: number) =>
      new Selection(new URLSearchParams({ head: '1.0', notes: notes(length) }).toString())
    expect(view(1000).exported).toContain('notes=')
    expect(view(3990).exported).toBe('head=1.0')
  })

  it('shows no effects where they cannot be computed, such as crosses of heads that are switched off', () => {
    const effects =
      'predict=1&off=0.1+1.2&target=%5B5%5D&colour=effect.ablation&lens=effect.gradient-attention&head=1.0'
    const selection = new Selection(effects)
    expect([selection.exported, selection.hasMore]).toEqual(['head=1.0', true])
    expect(selection.linkTo('a', 'k')).toBe('#head=1.0&analysis=a&share=k')
    expect(new Selection('head=1.0').hasMore).toBe(false)
  })
})
