import { expect, it } from 'vitest'
import { batteryRows, type HeadScores, leads } from '../../src/lib/data/batteries'

const battery = (name: string) => ({ name, title: name, doc: '', not: '', citation: '' })
const found: HeadScores = {
  batteries: [battery('induction'), battery('successor'), battery('delimiter')],
  prompts: 20,
  scores: {
    induction: [
      [0.1, 0.4],
      [0.9, null],
    ],
    delimiter: [
      [0.2, 0.2],
      [0.2, 0.2],
    ],
  },
  controls: {
    induction: [
      [0.2, 0.1],
      [0, null],
    ],
    delimiter: [
      [0.2, 0.2],
      [0.2, 0.2],
    ],
  },
  missing: { successor: 'No tokenizer.' },
}

it('lists the batteries that tested a head, with the best heads', () => {
  const [induction, delimiter] = batteryRows(found, { layer: 0, head: 1 })
  expect([induction.score, induction.control, induction.rank]).toEqual([0.4, 0.1, 2])
  expect(induction.leaders.map(({ name }) => name)).toEqual(['1.0', '0.1', '0.0'])
  expect(delimiter.battery.name).toBe('delimiter')
  expect(batteryRows(found, { layer: 1, head: 1 }).map(({ battery }) => battery.name)).toEqual(['delimiter'])
})

it('only heads above chance lead', () => {
  const of = (layer: number, head: number) => batteryRows(found, { layer, head }).map(leads)
  expect(of(1, 0)).toEqual([true, false])
  expect(of(0, 0)).toEqual([false, false])
})
