/** The part of a 2D canvas context that painters use: a canvas on screen provides it, and so does an SVG drawing for print. */
export type DrawingContext = Pick<
  CanvasRenderingContext2D,
  | 'arc'
  | 'beginPath'
  | 'bezierCurveTo'
  | 'clearRect'
  | 'clip'
  | 'closePath'
  | 'createImageData'
  | 'fill'
  | 'fillRect'
  | 'fillStyle'
  | 'fillText'
  | 'font'
  | 'getTransform'
  | 'globalAlpha'
  | 'lineCap'
  | 'lineTo'
  | 'lineWidth'
  | 'moveTo'
  | 'putImageData'
  | 'quadraticCurveTo'
  | 'rect'
  | 'restore'
  | 'rotate'
  | 'save'
  | 'setLineDash'
  | 'strokeRect'
  | 'strokeStyle'
  | 'textAlign'
  | 'textBaseline'
  | 'translate'
> & { stroke(path?: Path2D): void }

/** A sheet of a figure; `fit` sets its size and returns a context in CSS pixels. */
export interface Print {
  fit(width: number, height: number): DrawingContext
  path(): Path2D
}

export type Surface = HTMLCanvasElement | Print

/** Image pixels, which ignore transformations, per CSS pixel. */
export const ratioOf = (context: DrawingContext): number => context.getTransform().a

/** A path to stroke later. A canvas path cannot be read by a figure, so figures provide their own. */
export const newPath = (surface: Surface): Path2D => ('fit' in surface ? surface.path() : new Path2D())
