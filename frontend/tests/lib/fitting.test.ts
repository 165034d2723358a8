import { describe, expect, it } from 'vitest'
import { fixedSource } from '../../gallery/source'
import type { Request } from '../../src/lib/data/analysis'
import { isIncomplete, smallerRequests } from '../../src/lib/data/fitting'
import { type Source, SourceError } from '../../src/lib/data/source'
import { Session } from '../../src/state/session.svelte'
import { request } from '../support/request'

const GIB = 2 ** 30
/** Every map takes a GiB. */
const sizeOf = ({ lenses, maps }: Request) => (maps === false ? 0 : lenses.length) * GIB

function crowded(room: number, code = 'attention-budget-exceeded') {
  const source = fixedSource()
  const asked: Request[] = []
  const submit: Source['submit'] = (wanted, signal) => {
    asked.push(wanted)
    if (sizeOf(wanted) > room) throw new SourceError('No room.', code, 422, room, sizeOf(wanted))
    return source.submit(wanted, signal)
  }
  return { session: new Session({ ...source, submit }), asked }
}

describe('smaller', () => {
  it('asks for the open lens alone, then for thumbnails of all', () => {
    const [alone, none] = smallerRequests(request, 'effective')
    expect(alone).toEqual({ ...request, lenses: [request.lenses[1]] })
    expect(none).toEqual({ ...request, maps: false })
  })

  it('has one step for one lens', () => {
    const one = { ...request, lenses: [request.lenses[0]] }
    expect(smallerRequests(one, 'weights')).toEqual([{ ...one, maps: false }])
    expect(smallerRequests(request, 'norm')).toEqual([{ ...request, maps: false }])
  })
})

describe('a source with little room', () => {
  it('is asked once for what fits', async () => {
    const { session, asked } = crowded(2 * GIB)
    expect(await session.submit(request, 'effective')).toBe(true)
    expect(asked).toHaveLength(1)
    expect(isIncomplete(session.shown!.analysis)).toBe(false)
  })

  it('gives the open lens alone, with a warning that states sizes', async () => {
    const { session, asked } = crowded(GIB)
    expect(await session.submit(request, 'effective')).toBe(true)
    expect(asked).toHaveLength(2)
    const { analysis } = session.shown!
    expect(analysis.lenses).toEqual(['effective'])
    expect(isIncomplete(analysis)).toBe(true)
    expect(analysis.warnings.at(-1)!.message).toContain(
      'Only this lens was computed: all of them would need 2.0\u00a0GiB, and the limit is 1.0\u00a0GiB.',
    )
    expect(session.error).toBe('')
  })

  it('gives thumbnails, and is asked for no map then', async () => {
    const { session } = crowded(GIB / 2)
    expect(await session.submit(request, 'weights')).toBe(true)
    const { analysis, maps } = session.shown!
    expect(analysis.lenses).toEqual(['weights', 'effective'])
    expect(analysis.warnings.at(-1)!.message).toContain(
      'thumbnails and numbers are available: full maps would need 2.0\u00a0GiB',
    )
    await maps.wantMap('weights', { layer: 0, head: 0 })
    expect(maps.map('weights', { layer: 0, head: 0 })?.exact).toBe(false)
  })

  it('says its first refusal where nothing fits, and no other is tried again', async () => {
    const none = crowded(-1)
    expect(await none.session.submit(request, 'weights')).toBe(false)
    expect(none.session.error).toBe('No room.')
    expect(none.session.shown).toBeUndefined()
    const other = crowded(-1, 'too-many-tokens')
    expect(await other.session.submit(request, 'weights')).toBe(false)
    expect(other.asked).toHaveLength(1)
  })
})
