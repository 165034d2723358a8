/** Effects of heads on a fixed prediction. */
import { type EffectRequest, type Effects, mapsName, type Prediction } from '../src/lib/data/effects'
import type { ScoreRow } from '../src/lib/data/score'
import { HEADS, LAYERS, perHead } from './source'

const WORDS = [' water', ' bank', ' money', ' river', ' boats', ' town', ' year', ' people']
const [FIRST, SECOND, ...REST] = WORDS

/** Each is half as likely as the one before it. */
const predict = (words: readonly string[]): Prediction[] =>
  words.map((text, place) => ({ id: WORDS.indexOf(text), text, probability: 0.5 ** (place + 1) }))

function fixedScore({ query, key }: EffectRequest['method']): ScoreRow {
  const row = (term: (place: number) => number) =>
    Array.from({ length: 12 }, (_, place) => (place <= Number(query) ? term(place) : null))
  const [content, rotation] = [(place: number) => ((place * 5) % 7) - 2.5, (place: number) => place / 8 - 1]
  const terms = {
    content: row(content),
    rotation: row(rotation),
    score: row((place) => content(place) + rotation(place)),
    weight: row((place) => 0.5 ** (1 + ((place * 3) % 8))),
  }
  return { query: Number(query), key: Number(key), terms }
}

export const fixedEffects: Effects = {
  async compute(analysis, { target, heads, method }) {
    const texts = target.length > 0 ? target.map((one) => WORDS[Number(one)]) : [FIRST]
    const before = predict(WORDS)
    return {
      target: { ids: texts.map((text) => WORDS.indexOf(text)), texts, value: 6.25 },
      predictions: before,
      values: perHead(({ layer, head }) => ((layer * 7 + head * 5) % 13) / 8 - 0.75),
      together: heads ? { effect: 7, before, after: predict([SECOND, FIRST, ...REST]) } : null,
      baseline: null,
      score: method.name === 'score' ? fixedScore(method) : null,
      parts: method.name === 'score' ? { mlp: [1.5, -0.75], embedding: [2.25], bias: [0.5] } : {},
      writes:
        method.name === 'contribution'
          ? perHead(({ head }) => WORDS.slice(0, 4).map((text, at) => ({ text, logit: head / 8 + 1 - at })))
          : null,
      maps:
        method.name === 'gradient-attention'
          ? { name: mapsName(analysis, '1'), shape: [LAYERS, HEADS, 12, 12], subset: null }
          : null,
    }
  },
}
