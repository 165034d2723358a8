/** Format numbers for people: a few digits, a real minus sign, and units. */
const minus = (text: string) => text.replace('-', '\u2212')

/** One decimal where whole numbers would round to 0 or 100, or lose half of the value. */
export function percent(share: number): string {
  const size = Math.abs(share)
  const fine = (size > 0 && size < 0.1) || (size > 0.99 && size < 0.9995)
  return `${minus((100 * share).toFixed(fine ? 1 : 0))}\u00a0%`
}

/** Four decimals where they are significant, powers of ten below. */
export function weight(value: number): string {
  if (value === 0) return '0'
  const size = Math.abs(value)
  if (size < 1e-4) return minus(value.toExponential(1).replace(/e([+-]?)(\d+)/, '\u00b710^$1$2'))
  return minus(value.toFixed(4))
}

/** As many digits as tell adjacent float32 values apart. */
export const float32 = (value: number) => minus(Number(value.toPrecision(9)).toString())

/** For legends and cells: at most three significant digits, no trailing zeros. */
export function short(value: number): string {
  if (value === 0) return '0'
  const size = Math.abs(value)
  if (size < 1e-3) return minus(value.toExponential(0))
  return minus(Number(value.toPrecision(size >= 100 ? 3 : 2)).toString())
}

export function bytes(count: number): string {
  const [size, unit] = count >= 2 ** 30 ? [count / 2 ** 30, 'GiB'] : [count / 2 ** 20, 'MiB']
  return `${size.toFixed(size < 9.95 ? 1 : 0)}\u00a0${unit}`
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`
  return `${Math.round(ms / 60_000)} min`
}

/** A time of day if today, otherwise with its date. `moment` in ms since 1970. */
export function when(moment: number, now = Date.now()): string {
  const [then, today] = [new Date(moment), new Date(now)]
  const clock = then.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
  if (then.toDateString() === today.toDateString()) return clock
  const year = then.getFullYear() === today.getFullYear() ? {} : ({ year: 'numeric' } as const)
  return `${then.toLocaleDateString([], { day: 'numeric', month: 'short', ...year })}, ${clock}`
}

export const plural = (count: number, noun: string) => `${count} ${noun}${count === 1 ? '' : 's'}`
