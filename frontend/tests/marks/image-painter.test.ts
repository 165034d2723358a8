import { describe, expect, it } from 'vitest'
import { fixedPatches, fixedPicture } from '../../gallery/image'
import { fitImage, fitTwice, patchAt, patchesIn } from '../../src/marks/image-painter'

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

  it('are held by a rectangle when their middle is inside, whichever way it is drawn', () => {
    const held = patchesIn(tokens, fixedPicture, 224, [70, 70], [10, 10])
    expect(held.map((token) => tokens[token].text)).toEqual(['0,0', '0,1', '1,0', '1,1'])
    expect(patchesIn(tokens, fixedPicture, 224, [0, 0], [3, 3])).toEqual([])
  })
})
