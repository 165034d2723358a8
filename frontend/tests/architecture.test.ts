/** Holds the import direction lib <- api, state, marks <- views <- app, and bans what could run a token as code. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize, relative } from 'node:path'
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
const LONGEST = 400

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.(ts|svelte)$/.test(file) && !file.endsWith('schema.ts'))
  .map((file) => ({ file, text: readFileSync(join(SRC, file), 'utf8') }))
const folder = (file: string) => file.split('/')[0]

describe.each(files)('$file', ({ file, text }) => {
  it('imports only what its folder may', () => {
    for (const [, path] of text.matchAll(/from '(\.[^']+)'/g)) {
      const target = folder(relative(SRC, normalize(join(SRC, dirname(file), path))))
      expect(MAY_IMPORT[folder(file)], `${file} imports ${path}`).toContain(target)
    }
  })

  it('runs nothing that came as text, and can be read in one sitting', () => {
    expect(text.match(BANNED)).toBeNull()
    expect(text.split('\n').length).toBeLessThanOrEqual(LONGEST)
  })
})
