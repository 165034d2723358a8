import { render } from 'svelte/server'
import { describe, expect, it } from 'vitest'
import { fixedSource } from '../../gallery/source'
import { parseMask, writeMask } from '../../src/lib/text/mask'
import { Pointer } from '../../src/state/pointer.svelte'
import { Selection } from '../../src/state/selection.svelte'
import MaskControl from '../../src/views/text/MaskControl.svelte'
import InContext from '../support/InContext.svelte'
import { request } from '../support/request'

describe('masked tokens in the address', () => {
  it('are in ascending order, once each', () => {
    expect(parseMask('7,3,7')).toEqual([3, 7])
    expect(writeMask([7, 3])).toBe('3,7')
  })

  it.each(['', 'x', '-1', '1.5', '99999'])('are none for %j', (text) => expect(parseMask(text)).toEqual([]))
})

it('a click masks what is pinned, wherever the pointer rests', async () => {
  const analysis = await fixedSource().submit(request, new AbortController().signal)
  const selection = new Selection('pins=q2')
  const pointer = new Pointer(selection, () => [6, 6])
  pointer.hover(3, 3)
  const masking = { mask: () => {}, unmaskable: '', unmasked: () => {} }
  const context = { selection, pointer, masking }
  const { body } = render(InContext, { props: { view: MaskControl, props: { analysis }, context } })
  expect(body).toContain('\u201ctwo\u201d')
})
