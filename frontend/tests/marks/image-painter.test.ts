import { describe, expect, it } from 'vitest'
import { fixedPatches, fixedPicture } from '../../gallery/image'
import type { Token } from '../../src/lib/data/analysis'
import { fitImage, fitTwice, patchAt, patchBeside, patchesIn, viewsOf } from '../../src/marks/image-painter'

const tokens = fixedPatches()

describe('patches of an image', () => {
  it('keep the proportions of the image on screen', () => {
    expect(fitImage({ ...fixedPicture, size: [200, 100] }, { width: 400, height: 400 })).toEqual([400, 200])
    expect(fitImage({ ...fixedPicture, size: [200, 100] }, { width: 400, height: 50 })).toEqual([100, 50])
  })

  it('are drawn twice, beside each other or stacked, where both are large enough', () => {
    const sizes = (width: number, height: number) => fitTwice(fixedPicture, { width, height })
    expect(sizes(814, 500)).toEqual({ size: [400, 400], stacked: false })
    expect(sizes(362, 614)).toEqual({ size: [300, 300], stacked: true })
    // Hardly larger one below the other.
    expect(sizes(614, 674)).toEqual({ size: [300, 300], stacked: false })
    expect(sizes(260, 200)).toBeNull()
  })

  it('are found under the hand at any size on screen', () => {
    for (const width of [100, 224, 611]) {
      const scale = width / fixedPicture.size[0]
      for (const [token, { box }] of tokens.entries()) {
        if (box)
          expect(patchAt(tokens, fixedPicture, width, [(box[0] + 16) * scale, (box[1] + 16) * scale])).toBe(token)
      }
      expect(patchAt(tokens, fixedPicture, width, [width + 1, 4])).toBeNull()
    }
  })

  it('are beside each other in four directions, also from tiles to the overview beside them', () => {
    const patch = (text: string, box: [number, number, number, number]): Token => ({ ...tokens[1], text, box })
    const views = [
      patch('0:0,0', [72, 0, 104, 32]),
      patch('0,0', [0, 0, 32, 32]),
      patch('0,1', [32, 0, 64, 32]),
      patch('1,0', [0, 32, 32, 64]),
      patch('1,1', [32, 32, 64, 64]),
    ]
    const walk = (from: string, direction: 'left' | 'right' | 'up' | 'down') =>
      views[
        patchBeside(
          views,
          views.findIndex(({ text }) => text === from),
          direction,
        )
      ].text
    expect(walk('0,0', 'right')).toBe('0,1')
    expect(walk('0,1', 'right')).toBe('0:0,0')
    expect(walk('0:0,0', 'left')).toBe('0,1')
    expect(walk('0,1', 'down')).toBe('1,1')
    expect(walk('1,0', 'up')).toBe('0,0')
    expect(walk('0,0', 'left')).toBe('0,0')
    expect(viewsOf(views)).toEqual([
      [72, 0, 104, 32],
      [0, 0, 64, 64],
    ])
    expect(viewsOf(tokens)).toEqual([[0, 0, 224, 224]])
  })

  it('are held by a rectangle when their middle is inside, whichever way it is drawn', () => {
    const held = patchesIn(tokens, fixedPicture, 224, [70, 70], [10, 10])
    expect(held.map((token) => tokens[token].text)).toEqual(['0,0', '0,1', '1,0', '1,1'])
    expect(patchesIn(tokens, fixedPicture, 224, [0, 0], [3, 3])).toEqual([])
  })
})
