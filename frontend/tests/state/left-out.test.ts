import { describe, expect, it } from 'vitest'
import { readAnalysis, type WireAnalysis } from '../../src/api/wire'
import type { Analysis } from '../../src/lib/data/analysis'
import { textWidth } from '../../src/lib/text/labels'
import { roomForValue } from '../../src/marks/cell-values'
import { windowOf } from '../../src/state/left-out'

const wire = {
  layer_numbers: [1, 3],
  head_numbers: [0],
  windows: [[5, 0], null],
  mechanism: { name: 'softmax' },
  timing_ms: {},
  tokens: Array(30).fill({}),
  maps: {},
} as unknown as WireAnalysis

describe('the queries that see a key', () => {
  const maps = { weights: { by_layer: false }, rollout: { by_layer: true } }
  const windows: Analysis['windows'] = [[29, 0], [5, 0], null, [4, 4]]
  const analysis = { windows, maps, tokens: Array(30).fill({}) } as unknown as Analysis
  const at = (layer: number) => ({ layer, head: 0 })

  it('are listed by the layers that were analysed', () => {
    expect(readAnalysis(wire, '').windows).toEqual([null, [5, 0], null, null])
  })

  it('are those of the layer, and for maps of whole layers those that the layers before reach', () => {
    expect([0, 1, 2, 3].map((layer) => windowOf(analysis, 'weights', at(layer)))).toEqual(windows)
    expect([0, 1, 2, 3].map((layer) => windowOf(analysis, 'rollout', at(layer)))).toEqual([
      [29, 0],
      [29, 0],
      null,
      null,
    ])
  })

  it('are those of all layers whose heads are merged', () => {
    const merged = (...layers: number[]) => ({
      ...at(layers[0]),
      among: { heads: layers.map(at), how: 'mean' as const },
    })
    expect(windowOf(analysis, 'weights', merged(1, 1))).toEqual([5, 0])
    expect(windowOf(analysis, 'weights', merged(0, 1))).toEqual([29, 0])
    expect(windowOf(analysis, 'weights', merged(1, 3))).toBeNull()
  })
})

it('has room for the values in its cells, with their sign', () => {
  expect(roomForValue({ signed: false })).toBeGreaterThan(textWidth('0.1234'))
  expect(roomForValue({ signed: true })).toBeGreaterThan(textWidth('\u22120.1234'))
})
