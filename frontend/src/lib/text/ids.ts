/** Token ids as text: whole numbers separated by spaces or commas. */
const LARGEST = 1_000_000

/** Undefined for anything else. */
export function parseIds(text: string): number[] | undefined {
  const parts = text.split(/[\s,;[\]]+/).filter((part) => part !== '')
  const numbers = parts.map(Number)
  const whole = parts.every((part) => /^\d+$/.test(part)) && numbers.every((number) => number <= LARGEST)
  return whole && numbers.length > 0 ? numbers : undefined
}

export const writeIds = (ids: readonly number[]) => ids.join(' ')
