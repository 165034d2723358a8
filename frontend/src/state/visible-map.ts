/** The map of a head that is opened in a window. */
import type { Head } from '../lib/data/analysis'
import { isLarge } from '../lib/maths/details'
import type { Window } from '../lib/maths/raster'
import type { OpenAnalysis } from './open-analysis'

/** Read a map until `until` is aborted. What is visible of a large one is there sooner than all of it, or an overview of that. */
export async function readVisible(
  { analysis, maps }: OpenAnalysis,
  lens: string,
  head: Head,
  window: Window,
  until: AbortSignal,
): Promise<void> {
  if (window.size < 1 && isLarge(analysis.maps[lens]?.shape)) await maps.wantDetail(lens, head, window, until)
  if (!until.aborted) await maps.wantMap(lens, head, until)
}
