/** One example for each lens: what to look at, and why it is there. A test verifies these claims for MiniLM. */
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
  lens,
  title,
  look,
  why,
  text,
  pair: '',
  head,
  show: { lens, compare: 'off', ...show },
})

export const LESSONS: readonly Lesson[] = [
  lesson(
    'weights',
    TROPHY,
    '3.1',
    'What a pronoun looks at',
    'Point at “it”: more than half of its weight lies on the trophy, a quarter on the suitcase.',
    'Weights say where a head looks. Whether that changes anything is what the other lenses are for.',
    { special: 'hide' },
  ),
  lesson(
    'effective',
    BANKS,
    '4.5',
    'The column that reaches nothing',
    'Left and right: the dark column of [CLS], 71 % of all weight, is almost gone.',
    'The text has more tokens than the head has dimensions, so part of every row multiplies to exactly nothing. Effective attention takes that part out.',
    { compare: 'side', other: 'weights' },
  ),
  lesson(
    'effective-simplex',
    BANKS,
    '1.11',
    'The same, as shares',
    'Rows on the left sum to 1, as those of the weights do; on the right half of them sum to less than a third.',
    'Many maps give the same output. This one keeps the sum of the rows, so that it can be laid beside the weights on one scale.',
    { compare: 'side', other: 'effective' },
  ),
  lesson(
    'null',
    CLOCK,
    '4.5',
    'What was taken out',
    'The column of [CLS] again, this time as the part of the weights that multiplies to nothing: over 95 % of the map.',
    'Weights are effective attention plus this. A head that has little to say parks its weight where it does nothing.',
  ),
  lesson(
    'effective-published',
    BANKS,
    '0.2',
    'What padding does',
    'Two maps that should be one: in this head they differ most.',
    'The code released with the paper decomposes the padded input, and padding counts as tokens there. Use it to compare with published figures, and effective for everything else.',
    { compare: 'side', other: 'effective' },
  ),
  lesson(
    'max-entropy',
    CLOCK,
    '3.2',
    'As even as the output allows',
    'The same head twice, with the same output: on the left its rows commit to as little as they can.',
    'Where the weights point at one token and this map does not, pointing there was not needed for the output.',
    { compare: 'side', other: 'weights' },
  ),
  lesson(
    'norm',
    BANKS,
    '1.9',
    'Much weight on short vectors',
    '[CLS] has 62 % of the weight and under a tenth of what is added up.',
    'A token counts by its weight times the length of its value vector. [CLS] has short ones in this head.',
    { compare: 'side', other: 'weights' },
  ),
  lesson(
    'norm-residual',
    BANKS,
    '4.0',
    'What a token keeps of itself',
    'The diagonal: on average six tenths of a row are the token’s own residual connection.',
    'Around the heads each token is carried on as it was. All heads of a layer together change it less than their maps suggest.',
  ),
  lesson(
    'rollout',
    BANKS,
    '5.0',
    'Six layers at once',
    'Walk down the layers: the diagonal fades, and the column of [CLS] grows to almost half.',
    'Multiplying maps through the layers says where a token could have come from, if every layer kept half of it. That half is an assumption, and [CLS] gathers what goes nowhere.',
  ),
  lesson(
    'alti',
    BANKS,
    '3.0',
    'Who moves the output',
    'The column of [CLS] is almost empty, though the heads of this layer put 41 % of their weight there.',
    'ALTI asks how much nearer each token’s vector brings the output to where it ends. What is near nothing moves nothing.',
  ),
  lesson(
    'value-zeroing',
    BANKS,
    '3.0',
    'Taking values away',
    'One token at a time: its values are set to 0, and the row shows whose loss turns the hidden state most.',
    'An experiment rather than a calculation: it includes whatever the rest of the layer makes of the loss.',
  ),
  lesson(
    'jump-map',
    BANKS,
    '0.2',
    'Tokens tied by the same keys',
    'Off the diagonal: pairs of tokens that have large scores on the same keys.',
    'The mechanism “jump” spreads scores along these ties. The map is made of scores, before softmax, and is no attention.',
  ),
]
