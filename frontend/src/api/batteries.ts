/** Tests of heads by batteries over the REST interface. */
import type { Batteries } from '../lib/data/batteries'
import { scatter } from '../lib/data/subset'
import type { Problem } from '../lib/net/problem'
import { path } from './http'
import { everyItem } from './pages'
import type { components } from './schema'
import { computeSingle } from './single'

type Schemas = components['schemas']

/** The server's own sentence: those of the page are about a text. */
const say = ({ detail, title }: Problem) => detail || title

export const batteries: Batteries = {
  async test(model, report, signal) {
    const at = (parts: string[]) => path(['models', ...model.split('/'), 'head-scores', ...parts])
    const [{ result }, known] = await Promise.all([
      computeSingle<Schemas['HeadScoresDocument']>(at, {}, report, signal, say),
      everyItem<Schemas['BatterySchema']>((query) => path(['batteries'], query), say),
    ])
    const grids = (of: Schemas['HeadScoresResult']['scores']) =>
      Object.fromEntries(Object.entries(of).map(([name, grid]) => [name, scatter(grid, result, null)]))
    const { prompts, missing, scores, controls } = result
    return { batteries: known, prompts, missing, scores: grids(scores), controls: grids(controls) }
  },
}
