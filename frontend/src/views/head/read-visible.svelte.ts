/** Reading what is visible of long maps. */
import type { Window } from '../../lib/maths/raster'
import type { Panels } from './panels.svelte'

const RESTS_MS = 60

/** While a component lives, read the visible part of the long maps on screen, once the window rests. */
export function readVisible(panels: Panels, window: () => Window): void {
  $effect(() => {
    const [visible, sides] = [window(), panels.sides]
    const read = () => {
      for (const { shown, lens, head } of sides) void shown.maps.wantDetail(lens, head, visible)
    }
    const timer = setTimeout(read, RESTS_MS)
    return () => clearTimeout(timer)
  })
}
