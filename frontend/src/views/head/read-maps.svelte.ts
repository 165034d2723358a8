/** Reading the maps on screen. */
import { untrack } from 'svelte'
import { afterPaint } from '../../lib/drawing/frame'
import type { Axes } from '../../lib/maths/axis'
import type { Window } from '../../lib/maths/raster'
import type { ComparisonSide } from '../../state/comparison-side'
import { mapKey } from '../../state/folded-maps.svelte'
import { readVisible } from '../../state/visible-map'
import type { Panels } from './panels.svelte'

/** A window that has not moved for this long is read. */
const RESTS_MS = 60
/** Sums take as long as an overview, so that they are read for a head that the reader stays with. */
const STAYS_MS = 600

type Side = Pick<ComparisonSide, 'shown' | 'lens' | 'head'>

/** While a component lives, read the maps on screen; of large maps what is visible first, and of long ones an overview, what is visible once the window rests, and sums. */
export function readMaps(panels: Panels, window: () => Window): void {
  /** Aborted once the maps on screen are others. */
  let until: AbortSignal
  const onScreen = $derived(
    panels.sides.map(({ shown, lens, head }) => `${shown.analysis.id} ${mapKey(lens, head)}`).join(),
  )
  $effect(() => {
    void onScreen
    const leaving = new AbortController()
    until = leaving.signal
    return () => leaving.abort()
  })

  /** The analysis whose heads have been painted. */
  let painted: unknown
  $effect(() => {
    const { sides, folds } = panels
    const [store, signal] = [sides[0].shown.maps, until]
    const want = () => {
      painted = store
      if (signal.aborted) return
      for (const [i, side] of sides.entries()) void readMap(side, untrack(window), folds[i], signal)
    }
    // The exact map of a long text is a megabyte, and the first picture must not wait for it.
    return painted === store ? want() : afterPaint(want)
  })

  $effect(() => {
    const [visible, { sides, folds }] = [window(), panels]
    const read = () => {
      for (const [i, { shown, lens, head }] of sides.entries())
        if (!folds[i]) void shown.maps.wantDetail(lens, head, visible, until)
    }
    const timer = setTimeout(read, RESTS_MS)
    return () => clearTimeout(timer)
  })

  $effect(() => {
    const sides = panels.sides.filter(({ shown, lens, head }) => shown.maps.map(lens, head)?.pool)
    const read = () => {
      for (const { shown, lens, head } of sides) void shown.maps.wantSums(lens, head, until)
    }
    const timer = setTimeout(read, STAYS_MS)
    return () => clearTimeout(timer)
  })
}

/** A map that is folded where it is kept comes first. */
async function readMap(side: Side, window: Window, axes: Axes | null | undefined, until: AbortSignal): Promise<void> {
  const { shown, lens, head } = side
  if (!axes) return readVisible(shown, lens, head, window, until)
  await shown.maps.folded.want(lens, head, axes)
  if (!until.aborted) await shown.maps.wantMap(lens, head, until)
}
