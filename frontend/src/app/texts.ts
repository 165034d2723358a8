/** Long texts that come with the page, each a file of its own that the page does not wait for. */
import type { Sample } from '../lib/data/source'
import chapter from './texts/five-children-and-it.txt'

export const TEXTS: readonly Sample[] = [
  { name: 'chapter', url: chapter, credit: 'By Edith Nesbit, 1902, public domain.' },
]
