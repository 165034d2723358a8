/** Lists that come in pages. */
import type { Problem } from '../lib/net/problem'
import { getJson } from './http'

export type Query = Record<string, string | number>

export interface Page<T> {
  items: T[]
  next?: string | null
}

/** As many as every list gives at once. */
const MOST = 200

/** All of a list, however many pages it has. `place` is its address, with a query of ours. */
export async function everyItem<T>(place: (query: Query) => string, say?: (problem: Problem) => string): Promise<T[]> {
  const found: T[] = []
  let query: Query | null = { limit: MOST }
  while (query) {
    const { items, next }: Page<T> = await getJson<Page<T>>(place(query), undefined, say)
    found.push(...items)
    query = next ? { limit: MOST, cursor: next } : null
  }
  return found
}
