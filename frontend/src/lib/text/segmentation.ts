/** Sentences of a text, found by the browser's segmenter, which follows Unicode's rules. */
import type { Token } from '../data/analysis'

/** The root locale, so that a link shows the same sentences to every reader. */
const segmenter =
  typeof Intl.Segmenter === 'function' ? new Intl.Segmenter('und', { granularity: 'sentence' }) : undefined

interface Sentences {
  /** The sentence of each token, counted from 0 over all texts; -1 for tokens outside of any, such as [CLS]. */
  of: Int32Array
  /** The number of each sentence, from 1, and its first words. */
  labels: readonly string[]
}

const known = new WeakMap<readonly Token[], Sentences>()

/** Sentences with at least one token. `texts` are those that the offsets of the tokens refer to, by segment. */
export function sentencesOf(tokens: readonly Token[], texts: readonly string[]): Sentences {
  const found = known.get(tokens) ?? findSentences(tokens, texts)
  known.set(tokens, found)
  return found
}

function findSentences(tokens: readonly Token[], texts: readonly string[]): Sentences {
  const split = texts.map(splitText)
  const of = new Int32Array(tokens.length).fill(-1)
  const labels: string[] = []
  const numbers = texts.map(() => new Map<number, number>())
  for (const [i, token] of tokens.entries()) {
    const { segment, start, end, kind } = token
    const text = split[segment]
    if (!text || text.ends.length === 0 || (end <= start && kind === 'special')) continue
    if (end <= start) {
      // Pieces that stand for no character of their own, such as spaces.
      of[i] = i > 0 && tokens[i - 1].segment === segment ? of[i - 1] : -1
      continue
    }
    const at = text.sentenceAt(start, end)
    const number = numbers[segment].get(at) ?? labels.length
    if (number === labels.length) {
      numbers[segment].set(at, number)
      labels.push(`${number + 1} ${firstWords(text.sentence(at))}`)
    }
    of[i] = number
  }
  return { of, labels }
}

interface SplitText {
  /** Where each sentence ends. Offsets count characters, unlike the indices of strings. */
  ends: readonly number[]
  sentence: (at: number) => string
  sentenceAt: (start: number, end: number) => number
}

function splitText(text: string): SplitText {
  const characters = Array.from(text)
  const ends: number[] = []
  for (const { segment } of segmenter?.segment(text) ?? []) ends.push((ends.at(-1) ?? 0) + Array.from(segment).length)
  return {
    ends,
    sentence: (at) => characters.slice(ends[at - 1] ?? 0, ends[at]).join(''),
    sentenceAt: (start, end) => {
      // A space before a word belongs to the sentence before.
      let from = start
      while (from < end - 1 && /\s/.test(characters[from] ?? '')) from += 1
      return Math.min(ends.length - 1, firstAfter(ends, from))
    },
  }
}

/** The index of the first of ascending numbers that is larger; their count if none is. */
function firstAfter(numbers: readonly number[], value: number): number {
  let [low, high] = [0, numbers.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (numbers[middle] > value) high = middle
    else low = middle + 1
  }
  return low
}

const LONGEST = 22

/** As many whole words as fit, with an ellipsis if there are more. */
function firstWords(sentence: string): string {
  const words = sentence.replace(/\s+/g, ' ').trim()
  const letters = Array.from(words)
  if (letters.length <= LONGEST) return words
  const cut = letters.slice(0, LONGEST + 1).join('')
  const whole = cut.lastIndexOf(' ')
  return `${whole > 0 ? cut.slice(0, whole) : letters.slice(0, LONGEST).join('')}\u2026`
}
