import { readFileSync } from 'node:fs'
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'
import { version } from './package.json' with { type: 'json' }

// HEADSCOPE_API names a running server for `vite dev`; otherwise the server itself serves the built page.
const server = process.env.HEADSCOPE_API ?? 'http://127.0.0.1:8000'

/** The packages whose code is in the page, with their licences: pages that are exported carry them, and the page has them in a file. */
const PACKAGES = { svelte: 'LICENSE.md', clsx: 'license', 'esm-env': 'LICENSE' }
const licences = () =>
  Object.entries(PACKAGES)
    .map(([name, file]) => `/*! ${name}\n\n${readFileSync(`node_modules/${name}/${file}`, 'utf-8')}*/`)
    .join('\n')

/** One script and one style sheet, with the names that the server expects. */
const VIEWER = {
  cssCodeSplit: false,
  outDir: 'dist/viewer',
  rolldownOptions: {
    input: 'src/app/standalone.ts',
    output: {
      codeSplitting: false,
      entryFileNames: 'viewer.js',
      postBanner: licences,
      assetFileNames: 'viewer[extname]',
    },
  },
}

/** For tests of this machine, which needs no small files. */
const GALLERY = { minify: false, reportCompressedSize: false, rolldownOptions: { input: 'gallery/index.html' } }

export default defineConfig(({ mode }) => ({
  plugins: [svelte()],
  define: { __VERSION__: JSON.stringify(version) },
  build: {
    target: 'es2022',
    // The Content-Security-Policy forbids inline scripts, and the page is one chunk: no preloading, no inlining.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    sourcemap: false,
    license: { fileName: 'licenses.md' },
    // `vite build --mode gallery` builds the gallery for the tests; `--mode viewer` builds what exported pages contain.
    ...(mode === 'gallery' ? GALLERY : {}),
    ...(mode === 'viewer' ? VIEWER : {}),
  },
  server: { proxy: { '/api': server, '/assets/plotly.js': server } },
  // Files share their modules, so that each is compiled once: a third of the time.
  test: { include: ['tests/**/*.test.ts'], isolate: false },
}))
