/** Batteries, which test every head of a model on prompts made for it, and the scores that they give. */
import { type Head, headName } from './analysis'

/** A battery: what it finds (`doc`), and what it does not show (`not`). */
export interface Battery {
  name: string
  title: string
  doc: string
  not: string
  citation: string
}

/** Scores and controls, what a head gets by chance on the same prompts, by battery, layer and head: 0 to 1; null where there is no head. */
export interface HeadScores {
  batteries: readonly Battery[]
  /** The number of prompts of each battery. */
  prompts: number
  scores: Readonly<Record<string, readonly (readonly (number | null)[])[]>>
  controls: Readonly<Record<string, readonly (readonly (number | null)[])[]>>
  /** By battery that the model does not allow: why. */
  missing: Readonly<Record<string, string>>
}

export interface Batteries {
  /** Test every head of a model by all batteries. `report` is called with the fraction that is done. Aborting cancels the tests. */
  test(model: string, report: (done: number) => void, signal: AbortSignal): Promise<HeadScores>
}

/** A head and its score in a battery. */
interface Leader extends Head {
  name: string
  score: number
}

/** One battery: the scores of a head and of those that lead, largest first. */
export interface BatteryRow {
  battery: Battery
  score: number
  control: number
  leaders: readonly Leader[]
  /** How many heads have a larger score, and one. */
  rank: number
}

const LEADERS = 3

/** The batteries that tested a head, in their order. */
export const batteryRows = (found: HeadScores, { layer, head }: Head): BatteryRow[] =>
  found.batteries.flatMap((battery) => {
    const { [battery.name]: scores = [] } = found.scores
    const score = scores[layer]?.[head] ?? null
    if (score === null) return []
    const control = found.controls[battery.name]?.[layer]?.[head] ?? 0
    const heads = headsOf(scores)
    const rank = 1 + heads.filter((one) => one.score > score).length
    return [{ battery, score, control, leaders: heads.slice(0, LEADERS), rank }]
  })

/** All heads, the largest score first. */
function headsOf(scores: HeadScores['scores'][string]): Leader[] {
  const all = scores.flatMap((row, layer) =>
    row.flatMap((score, head) => (score === null ? [] : [{ layer, head, name: headName({ layer, head }), score }])),
  )
  return all.sort((one, other) => other.score - one.score)
}

/** A head is among the leaders of a battery, and above chance. */
export const leads = ({ rank, score, control }: BatteryRow): boolean => rank <= LEADERS && score > control
