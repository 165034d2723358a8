/** Paged lists. */
import type { Problem } from '../lib/net/problem'
import { getJson } from './http'

export type Query = Record<string, string | number>

export interface Page<T> {
  items: T[]
  next?: string | null
}

/** The largest page of every list. */
const MOST = 200

/** All items of a list, page by page. `place` is its URL, with a query. */
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
