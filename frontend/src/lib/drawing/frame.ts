import type { DrawingContext, Surface } from './context'

/** Draws at most once per frame, however often it is asked. `painted` runs in the frame of the drawing itself. */
export function oncePerFrame(draw: () => void): { request(): void; stop(): void } {
  let frame = 0
  return {
    request() {
      if (frame !== 0) return
      frame = requestAnimationFrame(() => {
        frame = 0
        draw()
      })
    },
    stop() {
      cancelAnimationFrame(frame)
      frame = 0
    },
  }
}

/** Tokens of a text short enough to be read in the frame in which its map is painted. */
const SHORT = 128

/** Reads a map of so many tokens: at once, or once the map is on screen, of which it would take several frames. Answers how to call it off. */
export function besideMap(tokens: number, task: () => void): () => void {
  if (tokens > SHORT) return afterPaint(task)
  task()
  return () => {}
}

/** Runs a task once the frame that is now in the making is on screen; answers how to call it off. */
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
  // Setting the size clears the canvas and costs an allocation, so only where it changes.
  if (canvas.width !== w) canvas.width = w
  if (canvas.height !== h) canvas.height = h
  const context = canvas.getContext('2d')
  if (!context) throw new Error('This browser gives no 2d canvas.')
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  return context
}

const pixelRatio = () => Math.min(3, globalThis.devicePixelRatio || 1)

export function mark(name: string): void {
  performance.mark(`headscope:${name}`)
}
