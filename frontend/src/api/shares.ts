/** Share keys over REST. */
import type { Shares } from '../lib/data/shares'
import { call, path } from './http'
import type { WireShare } from './wire'

/** Keys to analyses or studies. */
export const shares = (kind: 'analyses' | 'studies'): Shares => ({
  async share(id) {
    const answer = await call(path([kind, id, 'share']), { method: 'POST' })
    return ((await answer.json()) as WireShare).key
  },

  async unshare(id) {
    await call(path([kind, id, 'share']), { method: 'DELETE' })
  },
})
