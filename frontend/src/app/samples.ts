/** Images that come with the page, for models that read images. */
import type { Sample } from '../lib/data/source'
import cat from './samples/cat.jpg'
import coffee from './samples/coffee.jpg'
import rocket from './samples/rocket.jpg'

export const SAMPLES: readonly Sample[] = [
  { name: 'cat', url: cat, credit: 'By Stéfan van der Walt, CC0.' },
  { name: 'cup', url: coffee, credit: 'By Rachel Michetti, CC0.' },
  { name: 'rocket', url: rocket, credit: 'By SpaceX, public domain.' },
]
