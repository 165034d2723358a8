/** A fixed image of hills under a moon, and its patches. */
import type { Picture, Token } from '../src/lib/data/analysis'

const SIDE = 224
const PATCH = 32
const DRAWN = `<svg xmlns="http://www.w3.org/2000/svg" width="${SIDE}" height="${SIDE}">
<rect width="224" height="224" fill="#9db4c8"/><circle cx="158" cy="58" r="27" fill="#f6f2df"/>
<path d="M0 150 60 90 118 158 160 118 224 172V224H0z" fill="#5c6f63"/><path d="M0 188 90 150 224 196V224H0z" fill="#33413a"/>
<path d="M56 176h22v-24l-11-14-11 14z" fill="#8a4a34"/></svg>`

export const fixedPicture: Picture = {
  url: `data:image/svg+xml,${encodeURIComponent(DRAWN)}`,
  rows: SIDE / PATCH,
  columns: SIDE / PATCH,
  size: [SIDE, SIDE],
}

export function fixedPatches(): Token[] {
  const token = (text: string, over: Partial<Token>): Token => ({
    text,
    id: -1,
    start: 0,
    end: 0,
    word: null,
    segment: 0,
    kind: 'word',
    ...over,
  })
  const { rows, columns } = fixedPicture
  const patches = Array.from({ length: rows * columns }, (_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns]
    const [x, y] = [column * PATCH, row * PATCH]
    return token(`${row},${column}`, { box: [x, y, x + PATCH, y + PATCH] })
  })
  return [token('[CLS]', { kind: 'special', box: null }), ...patches]
}
