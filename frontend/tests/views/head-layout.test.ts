import { describe, expect, it } from 'vitest'
import { headLayout, type Room } from '../../src/views/head/head-layout'

const labels = (count: number) => Array.from({ length: count }, () => 'token')
const room = (over: Partial<Room> = {}): Room => ({
  width: 740,
  height: 640,
  maps: 1,
  view: 'both',
  warned: false,
  ...over,
})

describe('headLayout', () => {
  it.each([2, 12, 34, 128, 512, 2048])('fits map and graph into the room at %i tokens', (count) => {
    const { beside, map, graph } = headLayout(labels(count), room())
    expect(beside).toBe(true)
    expect(map.left + map.side + graph.width).toBeLessThanOrEqual(740)
    expect(map.top + map.side).toBeLessThanOrEqual(640)
    expect(graph.height).toBeLessThanOrEqual(640)
  })

  it('gives cells that can be told apart the same whole number of pixels', () => {
    expect(headLayout(labels(34), room()).map.side % 34).toBe(0)
  })

  it('lines the rows of the graph up with those of the map where names fit', () => {
    const { map, graph } = headLayout(labels(12), room())
    expect(graph.pitch * 12).toBe(map.side)
    expect(graph.top).toBe(map.top)
    expect(headLayout(labels(512), room()).graph.pitch).toBe(18)
  })

  it('gives sentences longer names and larger cells, but not on a phone', () => {
    const [folded, plain] = [true, false].map((folded) => headLayout(labels(6), room({ view: 'map', folded })).map)
    expect(folded.characters).toBeGreaterThan(plain.characters)
    expect(folded.side).toBeGreaterThan(plain.side)
    expect(headLayout(labels(6), room({ width: 390, folded: true })).map.characters).toBe(plain.characters)
  })

  it('shows whole rows only', () => {
    const { graph } = headLayout(labels(512), room())
    expect((graph.height - graph.top) % graph.pitch).toBe(0)
  })

  it('moves rows closer where all of them are then on screen, names still apart', () => {
    const { graph } = headLayout(labels(40), room())
    expect(graph.pitch).toBeGreaterThanOrEqual(14)
    expect(graph.height).toBeGreaterThanOrEqual(graph.top + 40 * graph.pitch)
  })

  it('puts the graph below where the column is narrow', () => {
    const { beside, map, graph } = headLayout(labels(34), room({ width: 360, height: Number.POSITIVE_INFINITY }))
    expect(beside).toBe(false)
    expect(map.left + map.side).toBeLessThanOrEqual(360)
    expect(graph.width).toBeLessThanOrEqual(360)
  })

  it('shows as many rows of the graphs below two maps as names have room', () => {
    const { graph } = headLayout(labels(34), room({ maps: 2, width: 905 }))
    expect(graph.pitch).toBe(14)
    expect(Math.floor((graph.height - graph.top) / graph.pitch)).toBeGreaterThanOrEqual(8)
  })

  it('leaves the graph its strip below two maps', () => {
    const { map, graph } = headLayout(labels(34), room({ maps: 2 }))
    expect(2 * (map.left + map.side)).toBeLessThanOrEqual(740)
    expect(map.top + map.side + graph.height).toBeLessThanOrEqual(640)
  })
})
