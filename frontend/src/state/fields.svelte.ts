/** Choices that live in the address, declared as a table of fields: their names, initial texts, types and parsers. */
import { type Head, parseHead, parseHeads } from '../lib/data/analysis'
import { parseTarget, type Target } from '../lib/data/effects'
import { type LayerRange, parseLayers } from '../lib/data/layer-range'
import { type Notes, parseNotes } from '../lib/data/notes'
import type { Highlight } from '../lib/maths/highlight'
import type { Window } from '../lib/maths/raster'
import { decodeFragment, encodeFragment } from '../lib/net/fragment'
import { parseMask } from '../lib/text/mask'
import { parsePins, parseZoom } from '../lib/text/pins'

/** One field. In the address it is text, and absent while it has its initial text. */
interface Field<T> {
  initial: string
  parse: (text: string) => T
}

export const text = (initial = ''): Field<string> => ({ initial, parse: (text) => text })

/** On for any text but the empty one. */
export const flag = (): Field<boolean> => ({ initial: '', parse: (text) => text !== '' })

/** One of a few words. Anything else counts as the first of them, which is the initial one. */
export const choice = <const T extends string>(...words: [T, ...T[]]): Field<T> => ({
  initial: words[0],
  parse: (text) => words.find((word) => word === text) ?? words[0],
})

/** A number, clamped to its range. */
export const number = (initial: string, low: number, high: number): Field<number> => ({
  initial,
  parse: (text) => {
    const value = Number(text)
    return Math.min(high, Math.max(low, text !== '' && Number.isFinite(value) ? value : Number(initial)))
  },
})

export const integer = (initial: string, low: number, high: number): Field<number> => {
  const { parse } = number(initial, low, high)
  return { initial, parse: (text) => Math.round(parse(text)) }
}

/** A token, counted from 0. */
export const token = (): Field<number | undefined> => ({
  initial: '',
  parse: (text) => (/^\d{1,6}$/.test(text) ? Number(text) : undefined),
})

export const head = (): Field<Head | undefined> => ({ initial: '', parse: parseHead })

/** Pinned tokens and a rectangle. */
export const pinned = (): Field<Highlight> => ({ initial: '', parse: parsePins })

/** Token numbers in ascending order, such as `3,7`. */
export const masked = (): Field<readonly number[]> => ({ initial: '', parse: parseMask })

/** The visible part of a map. */
export const zoomed = (): Field<Window> => ({ initial: '', parse: parseZoom })

/** A range of layers; undefined for all. */
export const layerRange = (): Field<LayerRange | undefined> => ({ initial: '', parse: parseLayers })

/** Two heads or more, or none. */
export const headList = (most: number): Field<Head[]> => ({
  initial: '',
  parse: (text) => {
    const heads = parseHeads(text).slice(0, most)
    return heads.length > 1 ? heads : []
  },
})

/** Any number of heads. */
export const headSet = (most: number): Field<Head[]> => ({
  initial: '',
  parse: (text) => parseHeads(text).slice(0, most),
})

/** The outputs that a prediction is judged by, as JSON. */
export const target = (): Field<Target> => ({ initial: '', parse: parseTarget })

/** Stars and notes on heads, as JSON. */
export const notes = (): Field<Notes> => ({ initial: '', parse: parseNotes })

type Table = Record<string, Field<unknown>>
export type Texts<T extends Table> = Record<keyof T & string, string>
type Values<T extends Table> = { readonly [K in keyof T]: ReturnType<T[K]['parse']> }

/** The base class of a selection: it holds the text of every field and has a property with the value of each. */
export function addressFields<T extends Table>(table: T) {
  const initial = Object.fromEntries(Object.entries(table).map(([name, field]) => [name, field.initial])) as Texts<T>

  class AddressFields {
    protected texts = $state({ ...initial })

    read(fragment: string): void {
      this.texts = decodeFragment(fragment, initial) as Texts<T>
    }

    /** The fragment of the address, with some fields replaced. */
    protected encode(patch: Partial<Texts<T>> = {}): string {
      return encodeFragment({ ...this.texts, ...patch }, initial)
    }
  }

  for (const [name, { parse }] of Object.entries(table)) {
    const get = function (this: AddressFields) {
      return parse((this as unknown as { texts: Record<string, string> }).texts[name])
    }
    Object.defineProperty(AddressFields.prototype, name, { get })
  }
  return AddressFields as unknown as new () => AddressFields & Values<T>
}
