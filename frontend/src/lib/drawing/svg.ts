/** A drawing context that writes SVG, with text as text and images without loss. */
import type { DrawingContext, Print } from './context'

/** Encode pixels as a PNG data URL. */
export type Encode = (image: ImageData) => string

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

/** Control characters, lone surrogates and two noncharacters, which XML does not allow. */
function inXml(letter: string): boolean {
  const code = letter.codePointAt(0)!
  if (code < 0x20) return code === 0x9 || code === 0xa || code === 0xd
  return !(code >= 0xd800 && code <= 0xdfff) && code !== 0xfffe && code !== 0xffff
}

export const escapeXml = (text: string) =>
  Array.from(text, (letter) => ENTITIES[letter] ?? (inXml(letter) ? letter : '\ufffd')).join('')

const number = (value: number) => Number(value.toFixed(2)).toString()
/** Colours in a form that every SVG reader supports; colours of the tables are opaque. */
const colour = (style: string) =>
  style.replace(/^rgb\((\d+) (\d+) (\d+) \/ 1\)$/, (_, ...parts: string[]) => `rgb(${parts.slice(0, 3).join(',')})`)
const ANCHORS: Partial<Record<CanvasTextAlign, string>> = { right: 'end', end: 'end', center: 'middle' }
/** From the middle of a line of text to its baseline, in em. */
const MIDDLE = 0.35

interface State {
  fillStyle: string
  strokeStyle: string
  lineWidth: number
  lineCap: CanvasLineCap
  globalAlpha: number
  font: string
  textAlign: CanvasTextAlign
  textBaseline: CanvasTextBaseline
  dash: number[]
  /** Groups to close when this state is restored. */
  groups: number
}

/** The commands of a path, as in its attribute. */
class SvgPath {
  d = ''
  moveTo = (x: number, y: number) => this.#add('M', x, y)
  lineTo = (x: number, y: number) => this.#add('L', x, y)
  closePath = () => this.#add('Z')
  bezierCurveTo = (a: number, b: number, c: number, d: number, x: number, y: number) => this.#add('C', a, b, c, d, x, y)
  quadraticCurveTo = (a: number, b: number, x: number, y: number) => this.#add('Q', a, b, x, y)
  rect = (x: number, y: number, width: number, height: number) => {
    this.moveTo(x, y)
    this.d += `h${number(width)}v${number(height)}h${number(-width)}Z`
  }

  /** As an elliptic arc; a full circle needs two. */
  arc = (x: number, y: number, r: number, from: number, to: number, back = false) => {
    const at = (angle: number): [number, number] => [x + r * Math.cos(angle), y + r * Math.sin(angle)]
    const turn = Math.min(2 * Math.PI, Math.abs(to - from))
    const sweep = back ? 0 : 1
    this.#add(this.d === '' ? 'M' : 'L', ...at(from))
    const half = from + ((back ? -1 : 1) * turn) / 2
    for (const end of [half, back ? from - turn : from + turn]) {
      this.d += `A${number(r)} ${number(r)} 0 0 ${sweep} ${at(end).map(number).join(' ')}`
    }
  }

  #add(command: string, ...numbers: number[]): void {
    this.d += command + numbers.map(number).join(' ')
  }
}

/** One SVG of several sheets, with `ratio` image pixels per unit. */
export class Drawing {
  #parts: string[] = []
  #clips = 0

  constructor(
    readonly ratio: number,
    private readonly encode: Encode,
  ) {}

  write = (part: string): number => this.#parts.push(part)
  image = (image: ImageData): string => this.encode(image)
  /** A clip name that is unique in this drawing. */
  clip = (): string => `clip-${++this.#clips}`

  /** A surface whose corner is at x, y. */
  sheet(x: number, y: number): Print & { end(): void } {
    let context: SvgContext | undefined
    return {
      fit: () => {
        context?.finish()
        context = new SvgContext(this, x, y)
        return context
      },
      path: () => new SvgPath() as unknown as Path2D,
      end: () => context?.finish(),
    }
  }

  /** The SVG document. */
  svg(width: number, height: number, title: string): string {
    const size = `width="${number(width)}" height="${number(height)}" viewBox="0 0 ${number(width)} ${number(height)}"`
    const head = `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img" xml:space="preserve">`
    return `${head}<title>${escapeXml(title)}</title>${this.#parts.join('\n')}</svg>\n`
  }
}

class SvgContext implements DrawingContext {
  fillStyle = '#000000'
  strokeStyle = '#000000'
  lineWidth = 1
  lineCap: CanvasLineCap = 'butt'
  globalAlpha = 1
  font = '10px sans-serif'
  textAlign: CanvasTextAlign = 'start'
  textBaseline: CanvasTextBaseline = 'alphabetic'
  #dash: number[] = []
  #groups = 0
  #saved: State[] = []
  #path = new SvgPath()

  constructor(
    private readonly drawing: Drawing,
    x: number,
    y: number,
  ) {
    drawing.write(`<g transform="translate(${number(x)} ${number(y)})">`)
  }

  finish(): void {
    while (this.#saved.length > 0) this.restore()
    this.drawing.write('</g>'.repeat(this.#groups + 1))
    this.#groups = 0
  }

  save(): void {
    const { fillStyle, strokeStyle, lineWidth, lineCap, globalAlpha, font, textAlign, textBaseline } = this
    const style = { fillStyle, strokeStyle, lineWidth, lineCap, globalAlpha, font, textAlign, textBaseline }
    this.#saved.push({ ...style, dash: this.#dash, groups: this.#groups })
    this.#groups = 0
  }

  restore(): void {
    const before = this.#saved.pop()
    if (!before) return
    this.drawing.write('</g>'.repeat(this.#groups))
    const { dash, groups, ...style } = before
    Object.assign(this, style)
    this.#dash = dash
    this.#groups = groups
  }

  translate(x: number, y: number): void {
    this.#group(`transform="translate(${number(x)} ${number(y)})"`)
  }

  rotate(angle: number): void {
    this.#group(`transform="rotate(${number((angle * 180) / Math.PI)})"`)
  }

  clip(): void {
    const id = this.drawing.clip()
    this.drawing.write(`<clipPath id="${id}"><path d="${this.#path.d}"/></clipPath>`)
    this.#group(`clip-path="url(#${id})"`)
  }

  #group(attributes: string): void {
    this.drawing.write(`<g ${attributes}>`)
    this.#groups += 1
  }

  beginPath(): void {
    this.#path = new SvgPath()
  }
  moveTo = (x: number, y: number) => this.#path.moveTo(x, y)
  lineTo = (x: number, y: number) => this.#path.lineTo(x, y)
  closePath = () => this.#path.closePath()
  rect = (x: number, y: number, width: number, height: number) => this.#path.rect(x, y, width, height)
  arc = (...numbers: Parameters<DrawingContext['arc']>) => this.#path.arc(...numbers)
  bezierCurveTo = (...numbers: Parameters<DrawingContext['bezierCurveTo']>) => this.#path.bezierCurveTo(...numbers)
  quadraticCurveTo = (...numbers: Parameters<DrawingContext['quadraticCurveTo']>) =>
    this.#path.quadraticCurveTo(...numbers)
  setLineDash = (dash: Iterable<number>) => {
    this.#dash = [...dash]
  }

  stroke(path?: Path2D): void {
    const { d } = (path as unknown as SvgPath | undefined) ?? this.#path
    if (d === '') return
    const dash = this.#dash.length > 0 ? ` stroke-dasharray="${this.#dash.map(number).join(' ')}"` : ''
    const line = `stroke="${colour(this.strokeStyle)}" stroke-width="${number(this.lineWidth)}" stroke-linecap="${this.lineCap}"`
    this.drawing.write(`<path d="${d}" fill="none" ${line}${dash}${this.#opacity()}/>`)
  }

  fill(): void {
    this.drawing.write(`<path d="${this.#path.d}" fill="${colour(this.fillStyle)}"${this.#opacity()}/>`)
  }

  strokeRect(x: number, y: number, width: number, height: number): void {
    const path = new SvgPath()
    path.rect(x, y, width, height)
    this.stroke(path as unknown as Path2D)
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    const box = `x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}"`
    this.drawing.write(`<rect ${box} fill="${colour(this.fillStyle)}"${this.#opacity()}/>`)
  }

  /** The background is blank. */
  clearRect(): void {}

  fillText(text: string, x: number, y: number): void {
    const [, weight = '', size = '10', family = ''] = /^(\w+ )?([\d.]+)px(?:\/\S+)? (.+)$/.exec(this.font) ?? []
    const down = this.textBaseline === 'middle' ? MIDDLE * Number(size) : 0
    const anchor = ANCHORS[this.textAlign]
    const place = `x="${number(x)}" y="${number(y + down)}"${anchor ? ` text-anchor="${anchor}"` : ''}`
    const bold = weight ? ` font-weight="${weight.trim()}"` : ''
    const font = `font-family="${escapeXml(family.replaceAll('"', "'"))}" font-size="${size}"${bold}`
    this.drawing.write(
      `<text ${place} ${font} fill="${colour(this.fillStyle)}"${this.#opacity()}>${escapeXml(text)}</text>`,
    )
  }

  createImageData(width: number | ImageData, height = 0): ImageData {
    return typeof width === 'number' ? new ImageData(width, height) : new ImageData(width.width, width.height)
  }

  /** Positioned in image pixels, as on a canvas. */
  putImageData(image: ImageData, x: number, y: number): void {
    const { ratio } = this.drawing
    const [left, top, width, height] = [x, y, image.width, image.height].map((value) => number(value / ratio))
    const box = `x="${left}" y="${top}" width="${width}" height="${height}" preserveAspectRatio="none"`
    this.drawing.write(`<image ${box} image-rendering="optimizeSpeed" href="${this.drawing.image(image)}"/>`)
  }

  getTransform(): DOMMatrix {
    return { a: this.drawing.ratio } as DOMMatrix
  }

  #opacity(): string {
    return this.globalAlpha === 1 ? '' : ` opacity="${number(this.globalAlpha)}"`
  }
}
