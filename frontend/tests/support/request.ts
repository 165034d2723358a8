import type { Request } from '../../src/lib/data/analysis'

/** A request for a short text through two lenses. */
export const request: Request = {
  model: 'minilm',
  text: 'One two three.',
  textPair: '',
  kind: '',
  mechanism: { name: 'softmax', params: {} },
  lenses: ['weights', 'effective'].map((name) => ({ name, params: {} })),
  measures: ['entropy'],
}
