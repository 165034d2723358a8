import { describe, expect, it } from 'vitest'
import { formatValue, parseValue, readFields, readParams, writeParams } from '../../src/lib/data/params'

const SCHEMA = {
  properties: {
    alpha: { type: 'number', minimum: 0, exclusiveMaximum: 1, default: 0.5, description: 'A share.' },
    order: { type: 'integer', minimum: 1, maximum: 8, default: 1 },
    how: { type: 'string', enum: ['uniform', 'zero'], default: 'uniform' },
    signed: { type: 'boolean', default: false },
    layers: { anyOf: [{ type: 'array', items: { type: 'integer' } }, { type: 'null' }], default: null },
    heads: { type: 'array', items: { type: 'string' }, default: [] },
  },
}
const fields = readFields(SCHEMA)
const [alpha, order, how, signed, layers, heads] = fields

describe('parameters', () => {
  it('have one control each, with bounds and hints', () => {
    expect(fields.map(({ kind }) => kind)).toEqual(['number', 'number', 'choice', 'boolean', 'list', 'list'])
    expect([alpha.min, alpha.max, alpha.step, alpha.hint]).toEqual([0, 1, 'any', 'A share.'])
    expect([order.step, how.options, signed.initial]).toEqual([1, ['uniform', 'zero'], false])
    expect(readFields({})).toEqual([])
  })

  it('are read from what was typed', () => {
    expect(parseValue(alpha, ' 0.25 ')).toBe(0.25)
    expect(parseValue(alpha, 'much')).toBeUndefined()
    expect(parseValue(layers, '')).toBeUndefined()
    expect(parseValue(layers, '1, 2 5')).toEqual([1, 2, 5])
    expect(parseValue(heads, '4.5, 0.1')).toEqual(['4.5', '0.1'])
    expect(parseValue(heads, '[["a"]]')).toEqual([['a']])
    expect(parseValue(heads, '[broken')).toBeUndefined()
  })

  it('are written as they were', () => {
    expect([formatValue(null), formatValue(0.5), formatValue(['4.5', '0.1']), formatValue([[1]])]).toEqual([
      '',
      '0.5',
      '4.5, 0.1',
      '[[1]]',
    ])
  })

  it('stand in the address only where they differ from the defaults', () => {
    expect(writeParams(fields, { alpha: 0.5, order: 1, heads: [] })).toBe('')
    expect(writeParams(fields, { alpha: 0.25, signed: undefined, unknown: 1 })).toBe('{"alpha":0.25}')
    expect(readParams('{"alpha":0.25}')).toEqual({ alpha: 0.25 })
    for (const bad of ['', 'x', '[1]', 'null', '3']) expect(readParams(bad)).toEqual({})
  })
})
