/** Holds the import direction lib <- api, state, marks <- views <- app, keeps imports free of cycles, and bans what could run a token as code. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'

const SRC = join(import.meta.dirname, '../src')
const MAY_IMPORT: Record<string, string[]> = {
  lib: ['lib'],
  api: ['lib', 'api'],
  state: ['lib', 'state'],
  marks: ['lib', 'marks'],
  views: ['lib', 'api', 'state', 'marks', 'views'],
  app: ['lib', 'api', 'state', 'marks', 'views', 'app'],
}
const BANNED =
  /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\{@html|\sstyle="|srcdoc|javascript:/
const LONGEST = 300

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.(ts|svelte)$/.test(file) && !file.endsWith('schema.ts'))
  .map((file) => ({ file, text: readFileSync(join(SRC, file), 'utf8') }))
const folder = (file: string) => file.split('/')[0]

/** What a file imports, types included, as paths in src. */
function importsOf({ file, text }: (typeof files)[number]): string[] {
  const paths = [...text.matchAll(/(?:from |import |import\()'(\.[^']+)'/g)]
  return paths.map(([, path]) => {
    const target = join(dirname(file), path)
    return existsSync(join(SRC, `${target}.ts`)) ? `${target}.ts` : target
  })
}

describe.each(files)('$file', (source) => {
  it('imports only what its folder may', () => {
    for (const target of importsOf(source)) expect(MAY_IMPORT[folder(source.file)]).toContain(folder(target))
  })

  it('runs nothing that came as text, and can be read in one sitting', () => {
    expect(source.text.match(BANNED)).toBeNull()
    expect(source.text.split('\n').length).toBeLessThanOrEqual(LONGEST)
  })
})

it('has no import cycle', () => {
  const imports = new Map(files.map((source) => [source.file, importsOf(source)]))
  // Without the files that import nothing that is left, again and again, only cycles and what imports them remain.
  for (let before = -1; before !== imports.size; ) {
    before = imports.size
    for (const [file, targets] of imports) if (!targets.some((target) => imports.has(target))) imports.delete(file)
  }
  expect([...imports.keys()]).toEqual([])
})
