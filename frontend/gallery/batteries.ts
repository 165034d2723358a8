/** Scores of heads in fixed batteries. */
import type { Batteries } from '../src/lib/data/batteries'
import { perHead } from './source'

const battery = (name: string, title: string, doc: string) => ({
  name,
  title,
  doc,
  not: 'Not a use of that token.',
  citation: 'Olsson et al. 2022, In-context Learning and Induction Heads',
})

export const fixedBatteries: Batteries = {
  async test() {
    const score = (step: number) => perHead(({ layer, head }) => ((layer * 7 + head * step) % 13) / 14)
    const chance = perHead(({ head }) => head / 200)
    return {
      batteries: [
        battery('previous-token', 'Previous token', 'Attends to the token before: the share of attention on it.'),
        battery(
          'induction',
          'Induction',
          'Attends to the token that followed the earlier occurrence of the same token.',
        ),
        battery('successor', 'Successor', 'Raises the next word of a list.'),
      ],
      prompts: 20,
      scores: { 'previous-token': score(5), induction: score(3) },
      controls: { 'previous-token': chance, induction: chance },
      missing: { successor: 'The tokenizer has too few days, numbers or letters that are one token.' },
    }
  },
}
