/** Format numbers for people: a few digits, a real minus sign, powers of ten for small ones, and units. */
import type { Rule } from '../maths/edges'

const minus = (text: string) => text.replace('-', '\u2212')

/** One decimal where whole numbers would round to 0 or 100, or lose half of the value; 0 only for zero. */
export function percent(share: number): string {
  const size = Math.abs(share)
  if (size > 0 && size < 5e-4) return share > 0 ? '<0.1\u00a0%' : '>\u22120.1\u00a0%'
  const fine = (size > 0 && size < 0.1) || (size > 0.99 && size < 0.9995)
  return `${minus((100 * share).toFixed(fine ? 1 : 0))}\u00a0%`
}

/** A number with so many significant digits, and a power of ten if its decimals would be mostly zeros: `7.2·10⁻⁵`. */
function powerOfTen(value: number, digits: number): string {
  const [mantissa, power] = value.toExponential(digits - 1).split('e')
  const raised = Array.from(String(Number(power)), (sign) => SUPERSCRIPTS[sign]).join('')
  const before = { 1: '', '-1': '\u2212' }[Number(mantissa)] ?? `${minus(String(Number(mantissa)))}\u00b7`
  return `${before}10${raised}`
}

const SUPERSCRIPTS: Record<string, string> = {
  '-': '\u207b',
  0: '\u2070',
  1: '\u00b9',
  2: '\u00b2',
  3: '\u00b3',
  4: '\u2074',
  5: '\u2075',
  6: '\u2076',
  7: '\u2077',
  8: '\u2078',
  9: '\u2079',
}

/** Significant digits without trailing zeros. */
function significant(value: number, digits: number, least: number): string {
  const size = Math.abs(value)
  if (!Number.isFinite(value)) return minus(String(value))
  if ((size > 0 && size < least) || size >= 1e9) return powerOfTen(value, digits)
  return minus(Number(value.toPrecision(digits)).toString())
}

/** Four decimals where they are significant, powers of ten below. */
export function weight(value: number): string {
  if (value === 0) return '0'
  return Math.abs(value) < 1e-4 ? powerOfTen(value, 1) : minus(value.toFixed(4))
}

/** As many digits as tell adjacent float32 values apart. */
export const float32 = (value: number) => significant(value, 9, 1e-4)

/** For legends and sentences: at most three significant digits, one below a thousandth. */
export function short(value: number): string {
  const size = Math.abs(value)
  return significant(value, size < 1e-3 ? 1 : size >= 100 ? 3 : 2, 1e-3)
}

/** For cells of tables, which hold numbers as text. */
export const tabular = (value: number) => significant(value, 5, 1e-4)

/** A share for a cell of three characters. No share between 0 and 1 is rounded to either. */
export function cellPercent(share: number): string {
  const rounded = Math.round(100 * share)
  if (rounded === 0 && share !== 0) return share > 0 ? '<1' : '>\u22121'
  return rounded === 100 && share < 1 ? '>99' : minus(String(rounded))
}

/** A number of three characters and its sign for a cell: `12`, `1.2` or `.12`. Only 0 is written as 0. */
export function cellNumber(value: number): string {
  const size = Math.abs(value)
  if (size === 0 || size >= 9.95) return minus(value.toFixed(0))
  if (size >= 0.995) return minus(value.toFixed(1))
  return size < 0.005 ? '\u22480' : minus(value.toFixed(2).replace('0.', '.'))
}

export function bytes(count: number): string {
  const power = count >= 2 ** 30 ? 3 : count >= 2 ** 20 ? 2 : 1
  const [size, unit] = [count / 1024 ** power, ['KiB', 'MiB', 'GiB'][power - 1]]
  return `${size.toFixed(size < 9.95 ? 1 : 0)}\u00a0${unit}`
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`
  return `${Math.round(ms / 60_000)} min`
}

export function timeLeft(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s`
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`
  return `${Number((seconds / 3600).toPrecision(2))} h`
}

/** A time of day if today, otherwise with its date. `moment` in ms since 1970. */
export function when(moment: number, now = Date.now()): string {
  const [then, today] = [new Date(moment), new Date(now)]
  const clock = then.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
  if (then.toDateString() === today.toDateString()) return clock
  const year = then.getFullYear() === today.getFullYear() ? {} : ({ year: 'numeric' } as const)
  return `${then.toLocaleDateString([], { day: 'numeric', month: 'short', ...year })}, ${clock}`
}

/** Which connections a graph has. */
export function ruleWords(rule: Rule): string {
  if (rule.name === 'top-k') return `the ${rule.k} strongest of each query`
  if (rule.name === 'value') return `all of at least ${short(rule.value)}`
  return `the fewest that carry ${percent(rule.mass)} of each query\u2019s weight`
}

export const plural = (count: number, noun: string) => `${count} ${noun}${count === 1 ? '' : 's'}`
