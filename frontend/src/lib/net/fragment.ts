/** Fields in the address after `#`. Only those that differ from their initial text are written. */
type Fields = Record<string, string>

/** Longer addresses slow the browser down, which keeps them in its history too. */
const LONGEST = 2 ** 18

/** Why a fragment can be no link; empty if it can. */
export const linkProblem = (fragment: string): string =>
  fragment.length > LONGEST ? 'This text is too long for a link. Share or export the analysis instead.' : ''

export function encodeFragment(fields: Fields, initial: Fields): string {
  const parts: string[] = []
  for (const [key, value] of Object.entries(fields)) {
    if (value !== initial[key]) parts.push(`${key}=${encodeURIComponent(value).replaceAll('%20', '+')}`)
  }
  return parts.join('&')
}

/** Unknown keys are ignored, and a broken escape is kept as it is, so that a bad link never breaks the page. */
export function decodeFragment(fragment: string, initial: Fields): Fields {
  const fields = { ...initial }
  for (const part of fragment.replace(/^#/, '').split('&')) {
    const [key, ...rest] = part.split('=')
    if (Object.hasOwn(initial, key) && rest.length > 0) fields[key] = unescaped(rest.join('=').replaceAll('+', ' '))
  }
  return fields
}

/** Write the fragment into the address, which the window's event `fragment` tells. A bare `#…` would resolve against the embedding page when the viewer is in the frame of a notebook (`about:` address). */
export function writeFragment(how: 'pushState' | 'replaceState', state: unknown, fragment: string): void {
  try {
    history[how](state, '', new URL(`#${fragment}`, location.href))
    dispatchEvent(new Event('fragment'))
  } catch {
    // Browsers reject some addresses, or too many of them. The old one then stays, which only affects undo and redo.
  }
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
