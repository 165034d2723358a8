/** Two fingers on an element: how far they move apart, and where to. */
type Point = readonly [x: number, y: number]

interface Pinch {
  /** A second finger came down: what the first began is over. */
  start: () => void
  /** The distance of the fingers before, as a share of that now; the middle between them in the window; and how far it moved. */
  move: (factor: number, middle: Point, by: Point) => void
}

const between = (a: Point, b: Point): Point => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]
const distance = (a: Point, b: Point) => Math.max(1, Math.hypot(a[0] - b[0], a[1] - b[1]))

/** An attachment that reports pinches; while there are two fingers, the element's own handlers hear of neither. */
export const pinched =
  ({ start, move }: Pinch) =>
  (element: HTMLElement) => {
    const held = new Map<number, Point>()

    function down(event: PointerEvent): void {
      if (event.pointerType !== 'touch') return
      held.set(event.pointerId, [event.clientX, event.clientY])
      if (held.size < 2) return
      event.stopPropagation()
      start()
    }

    function moved(event: PointerEvent): void {
      if (held.size < 2 || !held.has(event.pointerId)) return
      event.stopPropagation()
      const [a, b] = held.values()
      held.set(event.pointerId, [event.clientX, event.clientY])
      const [c, d] = held.values()
      const [from, to] = [between(a, b), between(c, d)]
      move(distance(a, b) / distance(c, d), to, [to[0] - from[0], to[1] - from[1]])
    }

    const up = (event: PointerEvent) => void held.delete(event.pointerId)

    const handlers = { pointerdown: down, pointermove: moved, pointerup: up, pointercancel: up } as const
    for (const [name, handler] of Object.entries(handlers)) element.addEventListener(name, handler as EventListener)
    return () => {
      for (const [name, handler] of Object.entries(handlers))
        element.removeEventListener(name, handler as EventListener)
    }
  }
