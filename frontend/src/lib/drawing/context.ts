/** What painters draw with. A canvas on screen gives one, a figure for print another; painters know this much and no more. */
export type Pen = Pick<
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

/** A sheet of a figure; asked for its size, it gives a pen that counts in CSS pixels. */
export interface Print {
  fit(width: number, height: number): Pen
  path(): Path2D
}

export type Surface = HTMLCanvasElement | Print

/** Pixels of images, which know no transformations, per pixel of everything else. */
export const ratioOf = (pen: Pen): number => pen.getTransform().a

/** A path to be stroked in one go later; one that belongs to the canvas cannot be read by a figure. */
export const newPath = (surface: Surface): Path2D => ('fit' in surface ? surface.path() : new Path2D())
