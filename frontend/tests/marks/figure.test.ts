import { describe, expect, it } from 'vitest'
import { crc32, withResolution } from '../../src/lib/drawing/png'
import { Drawing, escapeXml } from '../../src/lib/drawing/svg'
import { parseHex } from '../../src/lib/maths/colour'
import { wrap } from '../../src/marks/figure'

const blank = new Drawing(4, () => 'data:image/png;base64,')

describe('text in XML', () => {
  it('stays text, whatever it is', () => {
    expect(escapeXml('</text><script>"a" & b')).toBe('&lt;/text&gt;&lt;script&gt;&quot;a&quot; &amp; b')
  })

  it('loses only what XML cannot hold', () => {
    expect(escapeXml('a\u0000b\u001b\ud800c\udc00\uffff')).toBe('a\ufffdb\ufffd\ufffdc\ufffd\ufffd')
    expect(escapeXml('\u{1f468}\u200d\t\n\u202e')).toBe('\u{1f468}\u200d\t\n\u202e')
  })
})

describe('the context that writes SVG', () => {
  it('closes what it opens, restored or not', () => {
    const drawing = new Drawing(1, () => '')
    const sheet = drawing.sheet(10, 20)
    const context = sheet.fit(100, 100)
    context.save()
    context.translate(1, 2)
    context.rotate(Math.PI / 2)
    context.save()
    context.beginPath()
    context.rect(0, 0, 5, 5)
    context.clip()
    context.fillText('x', 0, 0)
    sheet.end()
    const svg = drawing.svg(100, 100, 'a')
    expect(svg.match(/<g[ >]/g)?.length).toBe(svg.match(/<\/g>/g)?.length)
    expect(svg).toContain('rotate(90)')
  })

  it('gives back the style it saved', () => {
    const context = blank.sheet(0, 0).fit(1, 1)
    context.globalAlpha = 0.5
    context.save()
    context.globalAlpha = 1
    context.fillStyle = '#123456'
    context.restore()
    expect([context.globalAlpha, context.fillStyle]).toEqual([0.5, '#000000'])
  })

  it('writes colours that old readers know, and text in the middle of its line', () => {
    const drawing = new Drawing(1, () => '')
    const context = drawing.sheet(0, 0).fit(10, 10)
    context.fillStyle = 'rgb(1 2 3 / 1)'
    context.font = "bold 14px 'A B', monospace"
    context.textBaseline = 'middle'
    context.textAlign = 'right'
    context.fillText('t', 5, 10)
    const svg = drawing.svg(10, 10, '')
    expect(svg).toContain('fill="rgb(1,2,3)"')
    expect(svg).toContain(`y="14.9" text-anchor="end" font-family="'A B', monospace" font-size="14" font-weight="bold"`)
  })

  it('strokes a path made apart', () => {
    const drawing = new Drawing(1, () => '')
    const sheet = drawing.sheet(0, 0)
    const context = sheet.fit(10, 10)
    const path = sheet.path()
    path.moveTo(0, 0)
    path.bezierCurveTo(1, 2, 3, 4, 5.123, 6)
    context.stroke(path)
    expect(drawing.svg(10, 10, '')).toContain('d="M0 0C1 2 3 4 5.12 6"')
  })
})

it('reads colours as a style sheet leaves the build', () => {
  expect(parseHex('#fff')).toEqual([255, 255, 255])
  expect(parseHex(' #0a1b2c')).toEqual([10, 27, 44])
})

describe('a PNG for print', () => {
  it('says its resolution behind its header', () => {
    const png = Uint8Array.from({ length: 60 }, (_, i) => i)
    const sized = withResolution(png, 300)
    const view = new DataView(sized.buffer)
    expect(String.fromCharCode(...sized.subarray(37, 41))).toBe('pHYs')
    expect([view.getUint32(33), view.getUint32(41), view.getUint32(45), sized[49]]).toEqual([9, 11811, 11811, 1])
    expect(view.getUint32(50)).toBe(crc32(sized.subarray(37, 50)))
    expect([...sized.subarray(0, 33), ...sized.subarray(54)]).toEqual([...png])
  })

  it('has the checksum of the standard', () => {
    expect(crc32(new TextEncoder().encode('123456789'))).toBe(0xcbf43926)
  })
})

describe('a caption', () => {
  it('is broken between words, and within one that is longer than a line', () => {
    expect(wrap('one two three', 7)).toEqual(['one two', 'three'])
    expect(wrap(`a ${'b'.repeat(10)} c`, 4)).toEqual(['a', 'bbbb', 'bbbb', 'bb c'])
    expect(wrap('', 4)).toEqual([])
  })
})
