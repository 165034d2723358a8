/** Searches among fixed heads: conditions joined by `and`, and one ambiguous sentence. */
import type { Head } from '../src/lib/data/analysis'
import type { FoundHead, SearchPart } from '../src/lib/data/search'
import { type HeadQueries, SourceError } from '../src/lib/data/source'

export const CLASSES = ['vertical', 'diagonal', 'vertical+diagonal', 'block', 'heterogeneous', 'unclassified']
/** In the order of the patterns that the maps are made of. */
const CLASS_OF = [1, 0, 4, 5, 3, 2]

export const fixedClass = ({ layer, head }: Head) => CLASS_OF[(layer * 5 + head * 7) % CLASS_OF.length]
const shareOf = ({ layer, head }: Head) => 0.5 + 0.4 * Math.sin(head + layer)

const QUESTION = {
  text: 'Layers are counted from 0 here, so layer 1 is the second. Which one do you mean?',
  choices: [
    { label: 'the first, layer 0', ask: 'layer = 0' },
    { label: 'the second, layer 1', ask: 'layer = 1' },
  ],
}

function holds(clause: string, head: Head): boolean {
  const [name, , number] = clause.split(' ')
  if (name === 'layer') return clause.includes('=') ? head.layer === Number(number) : head.layer < Number(number)
  return name === 'null_share' ? shareOf(head) > Number(number) : CLASSES[fixedClass(head)] === clause
}

export function fixedHeadQueries(heads: number, layers: number): HeadQueries {
  return {
    async ask(_id, text) {
      if (text.includes('layer 1')) return { view: null, question: QUESTION }
      if (text.includes('?')) throw new SourceError('This can\u2019t be read. (At character 5.)', 'invalid-query', 422)
      const parts = text.split(' and ').map((value): SearchPart => ({ slot: 'where', value, said: value }))
      return { view: { query: text, measures: [], parts, notes: [] }, question: null }
    },
    async heads(_id, query) {
      const clauses = ` ${query}`
        .split(' order by ')[0]
        .trim()
        .split(' and ')
        .filter((clause) => clause !== '')
      const every = Array.from({ length: layers * heads }, (_, i) => ({
        layer: Math.floor(i / heads),
        head: i % heads,
      }))
      const found = every.filter((head) => clauses.every((clause) => holds(clause, head)))
      const ranked = found.map((head): FoundHead => ({ ...head, values: { null_share: shareOf(head) } }))
      ranked.sort((a, b) => shareOf(b) - shareOf(a))
      return { query, rankedBy: 'null_share', direction: 'desc', of: every.length, heads: ranked }
    },
  }
}
