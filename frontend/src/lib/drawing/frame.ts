import type { DrawingContext, Surface } from './context'

/** Draw in the next frame. Returns the cleanup of an effect: it cancels the frame, because a changed effect draws again. */
export function nextFrame(draw: () => void): () => void {
  const frame = requestAnimationFrame(draw)
  return () => cancelAnimationFrame(frame)
}

/** Texts of up to this many tokens are read in the frame in which their map is painted. */
const SHORT = 128

/** Read a map: at once if it is small, otherwise after it has been painted, since that takes several frames. Returns a function that cancels. */
export function scheduleRead(tokens: number, task: () => void): () => void {
  if (tokens > SHORT) return afterPaint(task)
  task()
  return () => {}
}

/** Run a task after the next frame has been painted. Returns a function that cancels it. */
export function afterPaint(task: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined
  const frame = requestAnimationFrame(() => {
    timer = setTimeout(task)
  })
  return () => {
    cancelAnimationFrame(frame)
    clearTimeout(timer)
  }
}

/** Set the size of a canvas in device pixels and return a context in CSS pixels. */
export function fitCanvas(canvas: Surface, width: number, height: number): DrawingContext {
  if ('fit' in canvas) return canvas.fit(width, height)
  const ratio = pixelRatio()
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)]
  // Setting the size clears and reallocates the canvas, so set it only if it changes.
  if (canvas.width !== w) canvas.width = w
  if (canvas.height !== h) canvas.height = h
  const context = canvas.getContext('2d')
  if (!context) throw new Error('This browser does not support 2D canvas.')
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  return context
}

/** Attached to a canvas, frees its pixels once it has left the page; they would wait for the garbage collector. */
export const freed = (canvas: HTMLCanvasElement) => () => {
  canvas.width = 0
}

const pixelRatio = () => Math.min(3, globalThis.devicePixelRatio || 1)

export function mark(name: string): void {
  performance.mark(`headscope:${name}`)
}
