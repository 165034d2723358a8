/** How a model continues a text: its parameters, as declared by the REST interface. */
import { readFields, readParams, writeParams } from './params'

const count = { type: 'integer', minimum: 1, maximum: 4096, description: 'Maximum number of new tokens.' }
const PROPERTIES = {
  do_sample: {
    type: 'boolean',
    default: false,
    description: 'Sample from the distribution instead of taking the most likely token.',
  },
}
const DRAWN = {
  temperature: {
    type: 'number',
    exclusiveMinimum: 0,
    maximum: 100,
    default: 1,
    description: 'Temperature of the distribution.',
  },
  top_k: {
    type: 'integer',
    minimum: 1,
    maximum: 1_000_000,
    default: 50,
    description: 'Sample from this many most likely tokens.',
  },
  top_p: {
    type: 'number',
    exclusiveMinimum: 0,
    maximum: 1,
    default: 1,
    description: 'Sample from the most likely tokens whose probabilities add up to this.',
  },
  seed: {
    type: 'integer',
    minimum: 0,
    maximum: 2 ** 32 - 1,
    default: 0,
    description: 'The same seed gives the same text.',
  },
}

/** The JSON Schema of the parameters; those of sampling only if the model samples. */
export const samplingSchema = (generate: string) => ({
  properties: readParams(generate).do_sample === true ? { ...PROPERTIES, ...DRAWN } : PROPERTIES,
})

export const MOST_NEW = count.maximum

/** The number of tokens to generate; 0 for none. */
export function countNewTokens(generate: string): number {
  const wanted = readParams(generate).max_new_tokens
  return typeof wanted === 'number' && Number.isInteger(wanted) && wanted > 0 ? Math.min(wanted, MOST_NEW) : 0
}

/** The same parameters with another number of tokens; empty for none. */
export function withNewTokens(generate: string, tokens: number): string {
  return tokens > 0
    ? JSON.stringify({ ...readParams(generate), max_new_tokens: Math.min(Math.round(tokens), MOST_NEW) })
    : ''
}

/** The same parameters with another way of sampling. */
export function withSampling(generate: string, sampling: string): string {
  return JSON.stringify({ ...readParams(sampling), max_new_tokens: countNewTokens(generate) })
}

/** The parameters to send, without those of sampling if the model does not sample. */
export function readGenerate(generate: string): Record<string, unknown> | undefined {
  const tokens = countNewTokens(generate)
  if (tokens === 0) return undefined
  const kept = writeParams(readFields(samplingSchema(generate)), readParams(generate))
  return { ...readParams(kept), max_new_tokens: tokens }
}
