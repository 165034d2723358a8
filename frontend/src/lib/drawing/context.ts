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

/** Pixels of images, which know no transformations, per pixel of everything else. */
export const ratioOf = (context: DrawingContext): number => context.getTransform().a

/** A path to be stroked in one go later; one that belongs to the canvas cannot be read by a figure. */
export const newPath = (surface: Surface): Path2D => ('fit' in surface ? surface.path() : new Path2D())
