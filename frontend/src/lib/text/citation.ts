/** How to cite a figure: its caption, and BibTeX entries of Headscope and of the papers of its lenses. */

interface Cited {
  name: string
  title: string
  /** As declared, such as `Abnar & Zuidema 2020, Quantifying Attention Flow in Transformers, sec. 3`. */
  citation: string
}

const PAPER =
  /^(?<authors>[^,;\d]+) (?<year>(?:19|20)\d\d), (?<title>.+?)(?:, (?<where>(?:eq|sec|app|fig|tab)\. .*|released code.*))?$/u
const tex = (text: string) => text.replace(/[&%$#_{}]/g, '\\$&')

function authorsOf(text: string): string {
  const [first, others] = [text.replace(/ et al\.$/, ''), / et al\.$/.test(text)]
  return first.replaceAll(' & ', ' and ') + (others ? ' and others' : '')
}

const plain = (text: string) =>
  text
    .normalize('NFD')
    .replace(/[^a-z]/gi, '')
    .toLowerCase()

/** The entry of the first paper that a declaration cites; what cannot be read as one paper becomes the note of an entry for the lens. */
export function bibtexOf({ name, title, citation }: Cited): string {
  const [first, ...more] = citation.split('; ')
  const found = PAPER.exec(first)?.groups
  const note = [found?.where, ...more].filter(Boolean).join('; ')
  const fields = found
    ? { author: authorsOf(found.authors), title: found.title, year: found.year, ...(note ? { note } : {}) }
    : { title: `${title}, a lens of Headscope`, note: citation }
  const key = found ? `${plain(found.authors.split(/ et | & /)[0])}${found.year}` : `headscope-${name}`
  return entry('misc', key, fields)
}

function entry(type: string, key: string, fields: Record<string, string>): string {
  const lines = Object.entries(fields).map(
    ([name, value]) => `  ${name} = {${name === 'title' ? `{${tex(value)}}` : tex(value)}}`,
  )
  return `@${type}{${key},\n${lines.join(',\n')}\n}`
}

/** The caption with the whole id of the analysis, and the entries. */
export function citationOf(caption: string, id: string, version: string, lenses: readonly Cited[]): string {
  const headscope = entry('software', 'headscope', { title: 'Headscope', version, note: `Analysis ${id}` })
  const papers = [...new Set(lenses.map(bibtexOf))]
  return [`${caption} Headscope ${version}, analysis ${id}.`, headscope, ...papers].join('\n\n').concat('\n')
}
