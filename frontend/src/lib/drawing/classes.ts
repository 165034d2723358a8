/** Marks for the pattern of a head: shapes as well as shades, so that colour alone never carries meaning. */
export type ClassMark = 'grey' | 'frame' | 'grey frame' | 'corner' | 'dot' | 'none'

export const CLASS_MARKS: Record<string, { mark: ClassMark; means: string }> = {
  vertical: { mark: 'grey', means: 'looks at special tokens, or a sink' },
  diagonal: { mark: 'frame', means: 'looks at neighbours' },
  'vertical+diagonal': { mark: 'grey frame', means: 'looks at both' },
  block: { mark: 'corner', means: 'stays within one of two texts' },
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
