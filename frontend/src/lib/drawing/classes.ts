/** Marks for the pattern of a head: small shapes in its corner, which leave the map and the frame of the open head as they are. */
export type ClassMark = 'bar' | 'slash' | 'bar slash' | 'block' | 'dot' | 'none'

export const CLASS_MARKS: Record<string, { mark: ClassMark; means: string }> = {
  vertical: { mark: 'bar', means: 'looks at special tokens, or a sink' },
  diagonal: { mark: 'slash', means: 'looks at neighbours' },
  'vertical+diagonal': { mark: 'bar slash', means: 'looks at both' },
  block: { mark: 'block', means: 'stays within one of two texts' },
  heterogeneous: { mark: 'none', means: 'none of these' },
  unclassified: { mark: 'dot', means: 'too few tokens to tell' },
}

/** The classes that occur, in the order of their marks, with their counts. */
export function classCounts(classes: readonly (readonly (string | null)[])[]): [name: string, count: number][] {
  const all = classes.flat()
  return Object.keys(CLASS_MARKS).flatMap((name): [string, number][] => {
    const count = all.filter((other) => other === name).length
    return count === 0 ? [] : [[name, count]]
  })
}
