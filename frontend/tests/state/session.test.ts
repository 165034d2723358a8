import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { fixedSource } from '../../gallery/source'
import type { Run } from '../../src/lib/data/analysis'
import { type Source, SourceError } from '../../src/lib/data/source'
import { partName } from '../../src/lib/maths/details'
import { Maps } from '../../src/state/maps.svelte'
import type { OpenAnalysis } from '../../src/state/open-analysis'
import { Session } from '../../src/state/session.svelte'
import { readVisible } from '../../src/state/visible-map'
import { request } from '../support/request'

const session = (over: Partial<Source> = {}, delayMs = 0) => new Session({ ...fixedSource(delayMs), ...over })

describe('Maps', () => {
  it('asks for numbers of a head once its map has come and been painted, or has failed', async () => {
    const asked: string[] = []
    const frames: (() => void)[] = []
    vi.stubGlobal('requestAnimationFrame', (draw: () => void) => frames.push(draw))
    let come = (_: boolean): void => {}
    const map: Source['map'] = async () => {
      asked.push('map')
      const here = await new Promise<boolean>((resolve) => (come = resolve))
      if (!here) throw new Error('gone')
      return { data: new Float32Array(1), rows: 1, cols: 1, exact: true }
    }
    const measure: Source['measure'] = async () => {
      asked.push('numbers')
      return [1]
    }
    const failed = vi.fn()
    const maps = new Maps({ ...fixedSource(), map, measure }, 'id', failed, new AbortController().signal)
    for (const [head, here] of [
      [0, true],
      [1, false],
    ] as const) {
      asked.length = 0
      const at = { layer: 0, head }
      // Whichever part of the page is first.
      maps.wantNumbers('entropy', 'weights', at)
      const coming = maps.wantMap('weights', at)
      await Promise.resolve()
      expect(asked).toEqual(['map'])
      come(here)
      await coming
      await vi.waitFor(() => expect(frames).toHaveLength(1))
      expect(asked).toEqual(['map'])
      frames.pop()?.()
      await vi.waitFor(() => expect(maps.numbers('entropy', 'weights', at)).toEqual([1]))
      expect(asked).toEqual(['map', 'numbers'])
    }
    expect(failed).toHaveBeenCalledOnce()
    vi.unstubAllGlobals()
  })

  describe('of a long text', () => {
    const at = (head: number) => ({ layer: 0, head })
    const held = (maps: Maps, heads: number[]) => heads.filter((head) => maps.map('weights', at(head))?.exact)

    /** Maps of `mib` each, all entries of which are the number of their head; and the largest number of them that were read at a time. */
    function long(mib: number, over: Partial<Source> = {}) {
      const side = 512 * Math.sqrt(mib)
      const seen = { read: [] as number[], most: 0 }
      let coming = 0
      const map: Source['map'] = async (_id, _lens, { head }) => {
        seen.read.push(head)
        seen.most = Math.max(seen.most, ++coming)
        await Promise.resolve()
        coming -= 1
        return { data: new Float32Array(side * side).fill(head), rows: side, cols: side, exact: true }
      }
      const info = {
        shape: [1, 24, side, side],
        by_layer: false,
        signed: false,
        stored: true,
        identical: null,
        params: {},
        undefined: null,
      }
      const failed = vi.fn()
      const analysis = { maps: { weights: info } }
      const about = () => analysis
      const maps = new Maps({ ...fixedSource(), map, ...over }, 'id', failed, new AbortController().signal, about)
      return { maps, seen, failed, analysis }
    }

    it('reads of a large map what a window shows, unless all of it is here', async () => {
      const parts: string[] = []
      const mapPart: Source['mapPart'] = async (_id, _lens, { head }, part) => {
        parts.push(`${head}: ${partName(part)}`)
        return { data: new Float32Array(256 * 256), rows: 256, cols: 256, exact: true }
      }
      const { maps, seen } = long(9, { mapPart })
      const window = { top: 0.5, left: 0.25, size: 0.1 }
      await maps.wantDetail('weights', at(0), window)
      expect(parts).toEqual(['0: 1 768 1024 384 640'])
      expect(maps.details('weights', at(0))).toHaveLength(1)
      await maps.wantMap('weights', at(1))
      await maps.wantDetail('weights', at(1), window)
      expect([parts.length, seen.read]).toEqual([1, [1]])
      const small = long(1, { mapPart })
      await small.maps.wantDetail('weights', at(2), window)
      expect(parts).toHaveLength(1)
    })

    it('reads what a window shows before the overview, and nothing more once its head is left', async () => {
      const parts: string[] = []
      const mapPart: Source['mapPart'] = async (_id, _lens, { head }, { pool }) => {
        parts.push(`${head}/${pool}`)
        if (head === 1) left.abort()
        return { data: new Float32Array(4), rows: 2, cols: 2, exact: false, pool }
      }
      const { maps, analysis } = long(64, { mapPart })
      const [window, left] = [{ top: 0, left: 0, size: 0.1 }, new AbortController()]
      const shown = { analysis, maps } as unknown as OpenAnalysis
      await readVisible(shown, 'weights', at(0), window, left.signal)
      await readVisible(shown, 'weights', at(1), window, left.signal)
      expect(parts).toEqual(['0/1', '0/4', '1/1'])
    })

    it('stops reading the overview and the sums of a head that is left, which is no failure', async () => {
      const aborted: string[] = []
      const pending = (name: string, signal: AbortSignal) =>
        new Promise<never>((_, reject) =>
          signal.addEventListener('abort', () => {
            aborted.push(name)
            reject(signal.reason)
          }),
        )
      const mapPart: Source['mapPart'] = (_id, _lens, { head }, { pool }, signal) => pending(`${head}/${pool}`, signal)
      const sums: Source['sums'] = (_id, _lens, { head }, signal) => pending(`${head} sums`, signal)
      const { maps, failed } = long(64, { mapPart, sums })
      const [open, left] = [at(0), new AbortController()]
      const reading = [
        maps.wantMap('weights', open, left.signal),
        maps.wantSums('weights', open, left.signal),
        maps.wantDetail('weights', open, { top: 0, left: 0, size: 0.1 }, left.signal),
      ]
      left.abort()
      await Promise.all(reading)
      expect(aborted.toSorted()).toEqual(['0 sums', '0/1', '0/4'])
      expect(failed).not.toHaveBeenCalled()
    })

    const frames: (() => void)[] = []
    const paint = async () => {
      for (const draw of frames.splice(0)) draw()
      await new Promise((resolve) => setTimeout(resolve))
    }
    beforeEach(() => void vi.stubGlobal('requestAnimationFrame', (draw: () => void) => frames.push(draw)))
    afterEach(() => void vi.unstubAllGlobals())

    it('are kept up to so many bytes, but those of a comparison always', async () => {
      const { maps, seen } = long(16)
      for (const head of [0, 1, 0, 2, 3]) await maps.wantMap('weights', at(head))
      // Opening a map again makes it the last to go.
      expect(held(maps, [0, 1, 2, 3])).toEqual([0, 2, 3])
      expect(seen.read).toEqual([0, 1, 2, 3])
      expect(maps.spare('weights')).toBe(1)
      const longer = long(64)
      for (const head of [0, 1, 2]) await longer.maps.wantMap('weights', at(head))
      expect(held(longer.maps, [0, 1, 2])).toEqual([1, 2])
      expect(longer.maps.spare('weights')).toBe(0)
    })

    it('give their memory back once something else is painted', async () => {
      const { maps } = long(16)
      await maps.wantMap('weights', at(0))
      const first = maps.map('weights', at(0))!
      const { data } = first
      for (const head of [1, 2, 3]) await maps.wantMap('weights', at(head))
      expect(data.length).toBe(2048 * 2048)
      await paint()
      expect(data.length).toBe(0)
      expect(() => first.data).toThrow('released')
      expect(held(maps, [0, 1, 2, 3])).toEqual([1, 2, 3])
      expect(maps.map('weights', at(1))!.data[0]).toBe(1)
      // It is read again when it is opened again.
      await maps.wantMap('weights', at(0))
      expect(maps.map('weights', at(0))!.data[7]).toBe(0)
    })

    it('are left to the garbage collector if another analysis keeps them too', async () => {
      const [former, next] = [long(16).maps, long(16).maps]
      await former.wantMap('weights', at(0))
      next.inherit(former, ['weights'])
      for (const head of [1, 2, 3]) await former.wantMap('weights', at(head))
      await paint()
      expect(held(former, [0, 1, 2, 3])).toEqual([1, 2, 3])
      expect(next.map('weights', at(0))!.data.length).toBe(2048 * 2048)
    })

    it('are merged a few at a time', async () => {
      const { maps, seen, failed } = long(16)
      const heads = Array.from({ length: 7 }, (_, head) => at(head))
      for (const [how, value] of [
        ['mean', 3],
        ['max', 6],
      ] as const) {
        const merged = { ...at(0), among: { heads, how } }
        await maps.wantMap('weights', merged)
        const { data, exact } = maps.map('weights', merged)!
        expect([data.length, exact, data[0], data[data.length - 1]]).toEqual([2048 * 2048, true, value, value])
      }
      expect(seen.most).toBe(3)
      expect(failed).not.toHaveBeenCalled()
    })
  })
})

describe('Session', () => {
  it('shows an analysis together with its first grid', async () => {
    const it = session()
    expect(await it.submit(request, 'weights')).toBe(true)
    expect(it.shown?.analysis.tokens.map(({ text }) => text)).toEqual(['[CLS]', 'One', 'two', 'three', '.', '[SEP]'])
    expect(it.shown?.maps.grid('weights')?.rows).toBe(6)
    expect(it.busy).toBe(false)
  })

  it('follows a run and keeps the old picture until it is done', async () => {
    const it = session({}, 30)
    await it.submit(request, 'weights')
    const old = it.shown
    const next = it.submit({ ...request, text: 'Four.' }, 'weights')
    expect(it.busy).toBe(true)
    expect(it.shown).toBe(old)
    expect(await next).toBe(true)
    expect(it.shown?.analysis.text).toBe('Four.')
  })

  it('keeps the maps of lenses that a request leaves as they are, and of no others', async () => {
    const read: string[] = []
    const source = fixedSource()
    const grid: Source['grid'] = (id, lens, ...rest) => {
      read.push(lens)
      return source.grid(id, lens, ...rest)
    }
    const it = new Session({ ...source, grid })
    await it.submit(request, 'weights')
    const map = it.shown?.maps.grid('weights')
    await it.submit({ ...request, measures: ['entropy', 'rank'] }, 'weights')
    expect(it.shown?.maps.grid('weights')).toBe(map)
    expect(read).toEqual(['weights'])
    const other = { ...request, lenses: [{ name: 'weights', params: { of: 2 } }] }
    for (const changed of [other, { ...request, text: 'Four.' }, { ...request, model: 'other' }])
      await it.submit(changed, 'weights')
    expect(read).toEqual(['weights', 'weights', 'weights', 'weights'])
  })

  it('shows the last of two submissions, whichever ends first', async () => {
    const it = session({}, 30)
    const [first, second] = [it.submit(request, 'weights'), it.submit({ ...request, text: 'Four.' }, 'weights')]
    expect(await Promise.all([first, second])).toEqual([false, true])
    expect(it.shown?.analysis.text).toBe('Four.')
  })

  it('asks nothing about a run that a newer one has superseded', async () => {
    const asked: string[] = []
    const source = fixedSource(30)
    const grid: Source['grid'] = (id, ...rest) => {
      asked.push(id)
      return source.grid(id, ...rest)
    }
    const it = new Session({ ...source, grid })
    await Promise.all([it.submit(request, 'weights'), it.submit({ ...request, text: 'Four.' }, 'weights')])
    expect(asked).toEqual([it.shown?.analysis.id])
    expect(it.error).toBe('')
  })

  it('reads nothing more of what was typed in passing before it is forgotten', async () => {
    const source = fixedSource()
    const told: string[] = []
    const submit: Source['submit'] = async (...asked) => ({ ...(await source.submit(...asked)), status: 'running' })
    const map: Source['map'] = (id, _lens, _head, signal) =>
      new Promise((_, reject) => {
        signal.addEventListener('abort', () => {
          told.push(`left ${id}`)
          reject(signal.reason)
        })
      })
    const cancel = async (id: string) => {
      told.push(`forgotten ${id}`)
    }
    const it = new Session({ ...source, submit, map, cancel })
    await it.submit(request, 'weights', true)
    const { id } = it.shown!.analysis
    const coming = it.shown!.maps.wantMap('weights', { layer: 0, head: 0 })
    await it.submit({ ...request, text: 'One two three four.' }, 'weights', true)
    await coming
    expect(told).toEqual([`left ${id}`, `forgotten ${id}`])
    expect(it.error).toBe('')
  })

  it('cancels a run, and says nothing went wrong', async () => {
    const cancel = vi.fn(async () => {})
    const it = session({ cancel }, 200)
    const run = it.submit(request, 'weights')
    await vi.waitFor(() => expect(it.run?.id).toBe('fixed-0'))
    await it.cancel()
    expect(it.busy).toBe(false)
    expect(await run).toBe(false)
    expect(cancel).toHaveBeenCalledWith('fixed-0')
    expect(it.error).toBe('')
  })

  it('cancels a run whose id it does not know yet as soon as it learns it', async () => {
    const cancel = vi.fn(async () => {})
    const it = session({ cancel }, 200)
    const run = it.submit(request, 'weights')
    await it.cancel()
    expect(it.busy).toBe(false)
    expect(await run).toBe(false)
    expect(cancel).toHaveBeenCalledOnce()
    expect(it.shown).toBeUndefined()
  })

  it('keeps a finished analysis that is asked for again and cancelled, as the source would delete it', async () => {
    const cancel = vi.fn(async () => {})
    const source = fixedSource()
    const known = await source.submit(request, new AbortController().signal)
    const it = new Session({ ...source, cancel, submit: async () => ({ ...known, stored: true }) })
    const early = it.submit(request, 'weights')
    await it.cancel()
    expect(await early).toBe(false)
    await it.submit(request, 'weights')
    // A comparison is turned on, and goes on after the analysis on screen has been answered.
    void it.submit(request, 'weights', false, () => new Promise(() => {}))
    await vi.waitFor(() => expect(it.run?.status).toBe('done'))
    await it.cancel()
    expect([it.busy, it.shown?.analysis.id]).toEqual([false, known.id])
    expect(cancel).not.toHaveBeenCalled()
  })

  it('shows the sentence of a problem and keeps what was there', async () => {
    const it = session()
    await it.submit(request, 'weights')
    const old = it.shown
    expect(await it.submit({ ...request, text: ' ' }, 'weights')).toBe(false)
    expect(it.error).toBe('The text is empty. Type a sentence.')
    expect(it.shown).toBe(old)
  })

  it('shows why a run failed', async () => {
    const error = { title: 'Failed', status: 500, code: 'engine-died', detail: 'The engine died twice.' }
    const watch = async (id: string, report: (run: Run) => void) =>
      report({
        id,
        status: 'failed',
        progress: { fraction: 0, stage: 'failed', detail: '', position: null },
        attempts: 2,
        error,
      })
    const it = session({ watch }, 10)
    await it.submit(request, 'weights')
    expect(it.error).toBe('The engine died twice.')
  })

  it('says so when the server cannot be reached', async () => {
    const catalogue = () => Promise.reject(new SourceError('The server cannot be reached.', 'unreachable', 0))
    const it = session({ catalogue })
    await it.start()
    expect(it.error).toBe('The server cannot be reached.')
  })

  it('forgets what was asked for in passing once something else is on screen', async () => {
    const forgotten: string[] = []
    const cancel = async (id: string) => void forgotten.push(id)
    const it = session({ cancel }, 20)
    await it.submit(request, 'weights', true)
    expect(forgotten).toEqual([])
    await it.submit({ ...request, text: 'One two four.' }, 'weights', true)
    expect(forgotten).toEqual(['fixed-0'])
    expect([...(it.shown?.changes?.tokens ?? [])]).toEqual([3])
  })

  it('keeps what the reader asks for, whether or not it was typed before', async () => {
    const forgotten: string[] = []
    const source = fixedSource(20)
    const ids = new Map<string, string>()
    const submit: Source['submit'] = async (wanted, signal) => {
      const answer = await source.submit(wanted, signal)
      const id = ids.get(wanted.text) ?? answer.id
      ids.set(wanted.text, id)
      return { ...answer, id }
    }
    const it = new Session({ ...source, submit, cancel: async (id: string) => void forgotten.push(id) })
    const typed = it.submit(request, 'weights', true)
    const pressed = it.submit(request, 'weights')
    expect(await Promise.all([typed, pressed])).toEqual([false, true])
    await it.submit({ ...request, text: 'Four.' }, 'weights', true)
    await it.submit({ ...request, text: 'Five.' }, 'weights')
    expect(forgotten).toEqual([ids.get('Four.')])
  })

  it('looks up again what a model supports if it could not be read', async () => {
    const source = fixedSource()
    const support = vi.fn(source.support).mockRejectedValueOnce(new Error('offline'))
    const it = new Session({ ...source, support })
    await it.learn('minilm')
    expect(it.support.minilm).toBeUndefined()
    await it.learn('minilm')
    expect(it.support.minilm?.length).toBeGreaterThan(0)
    await it.learn('minilm')
    expect(support).toHaveBeenCalledTimes(2)
  })

  it('stays silent about what goes wrong while one types', async () => {
    const it = session()
    await it.submit({ ...request, text: ' ' }, 'weights', true)
    expect(it.error).toBe('')
  })
})
