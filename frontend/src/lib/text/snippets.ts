/** What is on screen as code: a Python script and a shell command that give the same maps. */
import { type Analysis, type Head, headName } from '../data/analysis'
import type { EffectRequest } from '../data/effects'
import { type Axis, membersOf } from '../maths/axis'
import type { Unit } from '../maths/units'

/** One side of what is on screen: the map of a head, or of several, of an analysis through a lens. */
export interface SnippetSide {
  analysis: Analysis
  lens: string
  head: Head
  /** The map is of this effect instead of a lens. */
  effect?: EffectRequest | undefined
}

/** How maps are folded: the axes of both sides. */
export interface Fold {
  unit: Exclude<Unit, 'pieces'>
  sides: readonly (readonly [queries: Axis, keys: Axis])[]
}

export type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json }

/** The request of an analysis through these lenses, as the interface takes it. */
export function requestOf(analysis: Analysis, lenses: readonly string[]): Record<string, Json> {
  const { tokens, keyTokens, generated, subset, kind, model } = analysis
  const method = (name: string, params: Record<string, unknown>) => ({ name, ...(params as Record<string, Json>) })
  return {
    model,
    ...inputOf(analysis),
    ...(analysis.generate ? { generate: analysis.generate as Record<string, Json> } : {}),
    ...(analysis.maxTokens ? { max_tokens: analysis.maxTokens } : {}),
    // Token ids are those that the model read.
    ...(analysis.text && analysis.mask.length > 0 ? { mask: analysis.mask } : {}),
    ...(kind === 'self' || kind === '' ? {} : { kind }),
    mechanism: method(analysis.mechanism, analysis.params),
    lenses: lenses.map((name) => method(name, analysis.maps[name]?.params ?? {})),
    measures: [],
    ...(subset ? { layers: subset.layers, heads: subset.heads } : {}),
  }

  function inputOf({ image, text, textPair, messages }: Analysis): Record<string, Json> {
    if (image) return { image, ...(text ? { text } : {}) }
    if (messages) return { messages: messages.map((message) => ({ ...message })) }
    if (text) return { text, ...(textPair ? { text_pair: textPair } : {}) }
    const crossed = keyTokens !== tokens
    const first = crossed ? keyTokens : tokens.slice(0, tokens.length - generated)
    const ids = (of: Analysis['tokens']) => of.map(({ id }) => id)
    return { token_ids: ids(first), ...(crossed && !analysis.generate ? { target_ids: ids(tokens) } : {}) }
  }
}

/** JSON as a literal of Python. */
export function pythonLiteral(value: Json): string {
  if (value === null) return 'None'
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (typeof value !== 'object') return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(', ')}]`
  return `{${Object.entries(value)
    .map(([name, item]) => `${JSON.stringify(name)}: ${pythonLiteral(item)}`)
    .join(', ')}}`
}

const isLayered = ({ analysis, lens }: SnippetSide) => analysis.maps[lens]?.by_layer ?? false

/** The map [Q, K] of a side, of an analysis in a variable of this name. */
function pythonMap(side: SnippetSide, of: string): { lines: string[]; map: string } {
  const at = ({ layer, head }: Head) => {
    const places = side.analysis.subset
      ? `${of}.layers.index(${layer}), ${of}.heads.index(${head})`
      : `${layer}, ${isLayered(side) ? 0 : head}`
    return `${of}.maps${side.effect ? '' : `["${side.lens}"]`}[${places}]`
  }
  const { among } = side.head
  if (!among) return { lines: [], map: at(side.head) }
  const lines = [`maps = np.stack([${among.heads.map(at).join(', ')}])`]
  const merged = among.how === 'mean' ? 'maps.mean(0)' : 'np.take_along_axis(maps, abs(maps).argmax(0)[None], 0)[0]'
  return { lines, map: merged }
}

/** A script that computes the map on screen as `attention`, and if two are compared the other one as `other`. `differ`: also their difference. */
export function pythonSnippet(
  first: SnippetSide,
  second: SnippetSide | undefined,
  differ: boolean,
  fold?: Fold,
): string {
  const sources = sourcesOf(second ? [first, second] : [first])
  const mine = pythonMap(first, sources[0].name)
  const theirs = second && pythonMap(second, sources[sources.length - 1].name)
  const numpy = fold !== undefined || [mine, theirs].some((side) => side && side.lines.length > 0)
  return `${[
    ...(numpy ? ['import numpy as np', ''] : []),
    'import headscope',
    '',
    ...sources.flatMap(({ name, sides }) => pythonSource(name, sides)),
    ...mine.lines,
    `attention = ${mine.map}  # ${titleOf(first)}: [Q, K], queries in rows`,
    ...(theirs ? [...theirs.lines, `other = ${theirs.map}  # ${titleOf(second!)}`] : []),
    ...(fold ? pythonFold(fold, theirs !== undefined) : []),
    ...(theirs && differ ? ['difference = other - attention'] : []),
    `print(${theirs && differ ? 'difference' : 'attention'}.round(4))`,
  ].join('\n')}\n`
}

const titleOf = ({ head, lens, effect }: SnippetSide) =>
  `${head.among ? `${head.among.how} of ${head.among.heads.map(headName).join(', ')}` : headName(head)}, ${effect?.method.name ?? lens}`

/** What the maps of a script are read from: an effect, or an analysis, which may have both. */
interface PythonSource {
  name: string
  sides: readonly SnippetSide[]
}

function sourcesOf([first, second]: readonly SnippetSide[]): PythonSource[] {
  const name = (side: SnippetSide, analysis: string) => (side.effect ? 'effect' : analysis)
  if (!second) return [{ name: name(first, 'analysis'), sides: [first] }]
  const same = second.analysis.id === first.analysis.id && !first.effect === !second.effect
  if (same) return [{ name: name(first, 'analysis'), sides: [first, second] }]
  return [
    { name: name(first, 'analysis'), sides: [first] },
    { name: name(second, first.effect ? 'analysis' : 'another'), sides: [second] },
  ]
}

function pythonSource(name: string, sides: readonly SnippetSide[]): string[] {
  const [{ analysis, effect }] = sides
  if (effect) return pythonEffectCall(analysis, effect)
  return analyze(name, requestOf(analysis, [...new Set(sides.map(({ lens }) => lens))]))
}

/** What `headscope.effect` takes of an analysis. */
const GIVEN = ['text', 'text_pair', 'token_ids', 'target_ids', 'mask', 'max_tokens', 'kind']

/** Whether the library takes the input of an analysis for effects: neither conversations nor generated texts. */
export const takesEffects = ({ messages, generate }: Analysis): boolean => !messages && !generate

/** The method with its parameters and heads, as the interface takes it. */
export const effectMethod = ({ method, heads }: EffectRequest): Record<string, Json> => ({
  ...(method as Record<string, Json>),
  ...(heads ? { heads: heads.map(headName) } : {}),
})

/** Lines that compute an effect as `effect`. */
export function pythonEffectCall(analysis: Analysis, request: EffectRequest): string[] {
  const { model, image, ...rest } = requestOf(analysis, [])
  const { target, position, against, reference } = request
  const outputs = target.map((one) => pythonLiteral(one))
  const given = Object.entries(rest).filter(([name]) => GIVEN.includes(name))
  const lines = [
    pythonLiteral(model),
    ...(image ? ['image="image.png"'] : []),
    ...given.map(([name, value]) => `${name}=${pythonLiteral(value)}`),
    ...(outputs.length > 0 ? [`target=${outputs.length > 1 ? `(${outputs.join(', ')})` : outputs[0]}`] : []),
    ...(position === null ? [] : [`position=${position}`]),
    ...(against === undefined ? [] : [`against=${pythonLiteral(against)}`]),
    ...(reference ? [`reference=${pythonLiteral([...reference])}`] : []),
    `method=${pythonLiteral(effectMethod(request))}`,
  ]
  return ['effect = headscope.effect(', ...lines.map((line) => `    ${line},`), ')']
}

function analyze(name: string, { model, image, ...rest }: Record<string, Json>): string[] {
  const picture = image === undefined ? [] : ['    image="image.png",  # the file of the image that was analysed']
  return [
    `${name} = headscope.analyze(`,
    `    ${pythonLiteral(model)},`,
    ...picture,
    ...Object.entries(rest).map(([field, value]) => `    ${field}=${pythonLiteral(value)},`),
    ')',
  ]
}

export const shellQuoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`

/** Lines that fold the maps. */
function pythonFold({ unit, sides }: Fold, both: boolean): string[] {
  const call = (name: string, axes: Fold['sides'][number]) =>
    `${name} = fold(${name}, ${axes.map((axis) => JSON.stringify(membersOf(axis))).join(', ')})`
  // The page's rules: a sentence is averaged over its queries that have a reading, and a word needs all of them.
  const mean = unit === 'sentences' ? 'np.nanmean' : 'np.mean'
  return [
    '',
    '',
    'def fold(weights, queries, keys):',
    '    """Sum over the keys of each group of tokens, and average over its queries."""',
    '    columns = np.stack([weights[:, group].sum(1) for group in keys], 1)',
    `    return np.stack([${mean}(columns[group], 0) for group in queries])`,
    '',
    '',
    `# Folded to ${unit}, given by the numbers of their tokens.`,
    call('attention', sides[0]),
    ...(both ? [call('other', sides[1])] : []),
  ]
}

/** Groups of tokens as the interface takes them, such as `0|1-4|5`; undefined if one of them has a gap. */
function groupRanges(axis: Axis): string | undefined {
  const groups = membersOf(axis)
  if (groups.some((tokens) => tokens[tokens.length - 1] - tokens[0] >= tokens.length)) return undefined
  const range = (tokens: readonly number[]) =>
    tokens.length > 1 ? `${tokens[0]}-${tokens[tokens.length - 1]}` : `${tokens[0]}`
  return groups.map(range).join('|')
}

/** Why the interface cannot be asked for the map on screen; empty if it can. */
export function curlRefusal({ analysis, lens, head }: SnippetSide, fold?: Fold): string {
  if (head.among) return 'No curl command: the REST interface returns single heads, not a mean or maximum of several.'
  if (fold?.unit !== 'sentences') return ''
  if (fold.sides[0].some((axis) => groupRanges(axis) === undefined))
    return 'No curl command: a sink inside a sentence is left out, and the REST interface merges adjacent tokens only.'
  if ((analysis.maps[lens]?.undefined?.[head.layer]?.[head.head] ?? 0) > 0)
    return 'No curl command: over REST, a sentence has no value if one of its queries has no reading.'
  return ''
}

/** Parameters that ask for the map of one head, folded or not. */
export const mapQuery = ({ analysis, lens, head }: SnippetSide, fold?: Fold): string => {
  const one = analysis.maps[lens]?.by_layer ? `layer=${head.layer}` : `layer=${head.layer}&head=${head.head}`
  return `${one}${fold ? foldQuery(fold) : ''}&format=json`
}

function foldQuery({ unit, sides: [[queries, keys]] }: Fold): string {
  if (unit === 'words') return '&by=word'
  const ranges = (axis: Axis) => encodeURIComponent(groupRanges(axis) ?? '')
  return `&groups=${ranges(queries)}${keys === queries ? '' : `&key_groups=${ranges(keys)}`}`
}

/** A command that sends JSON, and waits up to so many seconds for the result. */
export const curlPost = (url: string, seconds: number) =>
  `curl --silent --fail ${url} --header 'Content-Type: application/json' --header 'Prefer: wait=${seconds}'`

/** The id in the answer of a command. */
export const readId = `| python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])'`

/** Lines that ask the server at `root` for an analysis, and keep its id. */
export const curlId = (body: Record<string, Json>, root: string): string[] => [
  `id=$(${curlPost(shellQuoted(`${root}analyses`), 30)} \\`,
  `  --data ${shellQuoted(JSON.stringify(body))} ${readId})`,
]

/** A command that asks the server at `root` for the analysis, and then for the map as JSON. */
export function curlSnippet(side: SnippetSide, root: string, fold?: Fold): string {
  const { analysis, lens } = side
  return [
    ...curlId(requestOf(analysis, [lens]), root),
    `curl --silent --fail ${shellQuoted(root)}"analyses/$id/maps/${lens}?${mapQuery(side, fold)}"`,
    '',
  ].join('\n')
}
