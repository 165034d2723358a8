/** One example for each lens: what to look at, and why it is there. A test verifies these claims for MiniLM. */
import type { Declaration, Reasons } from '../data/analysis'
import { EXAMPLES, type Example } from './examples'

export interface Lesson extends Example {
  lens: string
  why: string
}

const [BANKS, TROPHY, , CLOCK] = EXAMPLES.map(({ text }) => text)

const lesson = (
  lens: string,
  text: string,
  head: string,
  title: string,
  look: string,
  why: string,
  show = {},
): Lesson => ({
  name: lens,
  lens,
  title,
  look,
  why,
  text,
  pair: '',
  head,
  show: { lens, compare: 'off', ...show },
})

const LESSONS: readonly Lesson[] = [
  lesson(
    'weights',
    TROPHY,
    '3.1',
    'What a pronoun looks at',
    'Point at “it”: more than half of its weight is on the trophy, a quarter on the suitcase.',
    'The weights show where a head looks. The other lenses show whether that affects the output.',
    { special: 'hide' },
  ),
  lesson(
    'effective',
    BANKS,
    '4.5',
    'A column without effect',
    'On the right, the dark column of [CLS] holds 71 % of all weight; on the left it is almost gone.',
    'The text has more tokens than the head has dimensions, so part of every row has no effect on the output at all. Effective attention removes that part.',
    { compare: 'side', other: 'weights' },
  ),
  lesson(
    'effective-simplex',
    BANKS,
    '1.11',
    'The same output, as shares',
    'On the left, rows sum to 1, like those of the weights; on the right, half of them sum to less than a third.',
    'Many maps give the same output. This one keeps the row sums, so it can be compared with the weights on one scale.',
    { compare: 'side', other: 'effective' },
  ),
  lesson(
    'null',
    CLOCK,
    '4.5',
    'What was removed',
    'The column of [CLS] again, now in the part of the weights that has no effect: over 95 % of the map.',
    'The weights are effective attention plus this part. A head with little to contribute parks its weight where it has no effect.',
  ),
  lesson(
    'effective-published',
    BANKS,
    '0.2',
    'The effect of padding',
    'Two maps that should be identical: in this head they differ most.',
    'The code released with the paper decomposes the padded input and so counts padding as tokens. Use this lens to compare with published figures, and effective attention for everything else.',
    { compare: 'side', other: 'effective' },
  ),
  lesson(
    'max-entropy',
    CLOCK,
    '3.2',
    'As even as the output allows',
    'The same head twice, with the same output: on the left, every row is spread as evenly as possible.',
    'Where the weights single out one token and this map does not, that focus was not needed for the output.',
    { compare: 'side', other: 'weights' },
  ),
  lesson(
    'norm',
    BANKS,
    '1.9',
    'High weight on short vectors',
    '[CLS] gets 62 % of the weight, but under a tenth of the summed norms.',
    'A token counts by its weight times the length of its value vector, and in this head that of [CLS] is short.',
    { compare: 'side', other: 'weights' },
  ),
  lesson(
    'norm-residual',
    BANKS,
    '4.0',
    'What a token keeps of itself',
    'The diagonal: on average, six tenths of a row come from the token’s own residual connection.',
    'The residual connection carries each token past the heads unchanged. All heads of a layer together change it less than their maps suggest.',
  ),
  lesson(
    'rollout',
    BANKS,
    '5.0',
    'Six layers at once',
    'Go down the layers: the diagonal fades, and the column of [CLS] grows to almost half.',
    'Multiplying the maps of all layers estimates where information came from, if every layer kept half of each token. That half is an assumption, and [CLS] collects attention that has no effect.',
  ),
  lesson(
    'norm-rollout',
    BANKS,
    '5.0',
    'Six layers, by length',
    'Go down the layers: the diagonal fades as in rollout, but the column of [CLS] stays below a tenth.',
    'As rollout, with the lengths of vectors instead of weights: they say how much arrives from [CLS], and how much a token keeps of itself.',
  ),
  lesson(
    'alti',
    BANKS,
    '3.0',
    'Which tokens move the output',
    'The column of [CLS] is almost empty, though the heads of this layer put 41 % of their weight there.',
    'ALTI measures how much closer each token’s vector brings the output to its final value. Vectors near zero move nothing.',
  ),
  lesson(
    'value-zeroing',
    BANKS,
    '3.0',
    'Removing values',
    'One token at a time: its values are set to 0; each row shows whose removal changes the hidden state most.',
    'An intervention rather than a decomposition: it includes how the rest of the layer responds.',
  ),
  lesson(
    'jump-map',
    BANKS,
    '0.2',
    'Tokens linked by shared keys',
    'Off the diagonal: pairs of tokens that have large scores on the same keys.',
    'The mechanism “jump” spreads scores along these links. The map consists of scores before softmax; it is not attention.',
  ),
]

/** The lessons about these lenses, without those that the examples' model does not support. */
export const lessonsOn = (lenses: readonly Declaration[], reasons: Reasons): Lesson[] =>
  LESSONS.filter(({ lens }) => lenses.some(({ name }) => name === lens) && !reasons[lens])
