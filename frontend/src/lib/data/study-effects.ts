/** Effects of heads in a study: its methods and their parameters, and the numbers that it keeps of them and of scores. */
import type { Declaration } from './analysis'
import { type EffectRequest, methodRequest, methodValues, missing, needs, type OtherTexts, offered } from './effects'
import { headNumber } from './measures'
import { type Params, withDefaults } from './params'

/** The method that a figure of effects is drawn for if none is named. */
export const USUAL = 'contribution'
/** Stands for the other text of every input. */
const PAIRED = 'paired'

/** The texts of a study beside those of its inputs. */
export interface StudyTexts {
  /** Every input has another text. */
  paired: boolean
  /** Texts over which ablation takes the mean, for all inputs. */
  reference: readonly string[]
}

const othersOf = ({ paired, reference }: StudyTexts): OtherTexts => ({ against: paired ? PAIRED : '', reference })

/** Tokens that heads raise are not reported. */
const valuesOf = (method: Declaration, text: string, texts: StudyTexts): Params => ({
  ...methodValues(method, text, othersOf(texts)),
  writes: 0,
})

/** A method with the parameters that studies offer. */
export function offeredInStudies(method: Declaration, texts: StudyTexts): Declaration {
  const own = offered(method, othersOf(texts))
  return { ...own, params: withDefaults(own.params, {}, ['writes']) }
}

/** Whether a method with these parameters, as JSON, needs reference texts. */
export const needsReference = (method: Declaration, text: string, texts: StudyTexts): boolean =>
  needs(method, valuesOf(method, text, texts), 'reference')

/** What has to be chosen before a study computes these effects; empty if nothing has. `text`: its parameters, as JSON. */
export function missingInStudies(method: Declaration, text: string, texts: StudyTexts): string {
  const values = valuesOf(method, text, texts)
  return needs(method, values, 'against') && !texts.paired
    ? `${method.title} needs another text for every input. Choose its column under Data.`
    : missing(method, values, othersOf(texts))
}

/** How a study requests a method; undefined while something has to be chosen first. */
export const studyMethod = (
  method: Declaration,
  text: string,
  texts: StudyTexts,
): EffectRequest['method'] | undefined => methodRequest(method, valuesOf(method, text, texts), othersOf(texts))?.method

/** The numbers that a study keeps of a method: the mean effect, and how often a head raises the target. */
export const studyNumbers = (method: Declaration): Declaration[] => [
  headNumber({ ...method, name: `${method.name}.effect`, title: `${method.title}: effect`, signed: true }),
  headNumber({
    ...method,
    name: `${method.name}.raises`,
    title: `${method.title}: inputs with the target raised`,
    doc: 'The share of inputs in which the head raises the target.',
    unit: '1',
    range: [0, 1],
    signed: false,
  }),
]

const score = (column: string, title: string, doc: string) =>
  headNumber({ name: `right_key.${column}`, title, doc, not: '', unit: '1', range: [0, 1], signed: false })

/** The numbers that a study keeps of how lenses find the keys that labels mark as right. */
export const SCORES: Declaration[] = [
  score(
    'accuracy',
    'Right key: accuracy',
    'How often the largest entry of a row is on the key that labels mark as right.',
  ),
  score('reciprocal_rank', 'Right key: reciprocal rank', '1 / the rank of the right key among the entries of its row.'),
]
