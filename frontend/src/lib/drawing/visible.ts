/** Which part of a scrolled element is on screen. */

/** Edges in pixels from an element's own corner. */
export interface Box {
  left: number
  top: number
  right: number
  bottom: number
}

/** Boxes grow to multiples of this, so that a scroll by a few pixels changes nothing. */
const STEP = 96
/** What is about to scroll into view counts as visible. */
const MARGIN = 24

/** The visible part, with a margin; `clips` are the boxes that an element whose corner is at (`left`, `top`) is seen through. */
export function visibleBox({ left, top }: Pick<Box, 'left' | 'top'>, clips: readonly Box[]): Box {
  const first = (edge: 'left' | 'top', from: number) =>
    Math.floor((Math.max(...clips.map((clip) => clip[edge])) - from - MARGIN) / STEP) * STEP
  const last = (edge: 'right' | 'bottom', from: number) =>
    Math.ceil((Math.min(...clips.map((clip) => clip[edge])) - from + MARGIN) / STEP) * STEP
  return { left: first('left', left), top: first('top', top), right: last('right', left), bottom: last('bottom', top) }
}

/** The index of the first of some elements that ends below a height in the window, or their number: they stand in lines, from top to bottom. */
export function firstBelow(elements: ArrayLike<Pick<Element, 'getBoundingClientRect'>>, height: number): number {
  let [from, to] = [0, elements.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if (elements[middle].getBoundingClientRect().bottom > height) to = middle
    else from = middle + 1
  }
  return from
}

/**
 * For `{@attach ...}` on an element that scrolls: scroll it, not the page, until what `find` selects within is visible, at first and whenever that changes.
 */
export const revealing = (find: () => string) => (holder: HTMLElement) => {
  const selector = find()
  const frame = requestAnimationFrame(() => {
    const [part, whole] = [holder.querySelector(selector)?.getBoundingClientRect(), holder.getBoundingClientRect()]
    if (!part) return
    if (part.bottom > whole.bottom) holder.scrollTop += part.bottom - whole.bottom + MARGIN
    else if (part.top < whole.top) holder.scrollTop -= whole.top - part.top + MARGIN
  })
  return () => cancelAnimationFrame(frame)
}

/** Report the visible part of an element at once, and whenever it changes by scrolling or resizing. Returns a function that stops. */
export function watchVisible(element: HTMLElement, report: (box: Box) => void): () => void {
  const holders: HTMLElement[] = []
  for (let at = element.parentElement; at; at = at.parentElement)
    if (getComputedStyle(at).overflow !== 'visible') holders.push(at)
  let last = ''
  const look = () => {
    const screen = { left: 0, top: 0, right: innerWidth, bottom: innerHeight }
    const box = visibleBox(element.getBoundingClientRect(), [
      screen,
      ...holders.map((at) => at.getBoundingClientRect()),
    ])
    const now = Object.values(box).join()
    if (now !== last) report(box)
    last = now
  }
  look()
  const sizes = new ResizeObserver(look)
  for (const at of [document.documentElement, element, ...holders]) sizes.observe(at)
  // Scrolling does not bubble.
  addEventListener('scroll', look, { capture: true, passive: true })
  return () => {
    sizes.disconnect()
    removeEventListener('scroll', look, { capture: true })
  }
}
