/** What is chosen, as the part of the address after `#`. Only what differs from the start is written. */
type Fields = Record<string, string>

export function encodeFragment(fields: Fields, initial: Fields): string {
  const parts: string[] = []
  for (const [key, value] of Object.entries(fields)) {
    if (value !== initial[key]) parts.push(`${key}=${encodeURIComponent(value).replaceAll('%20', '+')}`)
  }
  return parts.join('&')
}

/** Unknown keys are dropped; a broken escape is read as it stands, so that a bad link never breaks the page. */
export function decodeFragment(fragment: string, initial: Fields): Fields {
  const fields = { ...initial }
  for (const part of fragment.replace(/^#/, '').split('&')) {
    const [key, ...rest] = part.split('=')
    if (Object.hasOwn(initial, key) && rest.length > 0) fields[key] = unescaped(rest.join('=').replaceAll('+', ' '))
  }
  return fields
}

/** Write the fragment into the address. A bare `#…` would resolve against the embedding page when the viewer is in the frame of a notebook (`about:` address). */
export function writeFragment(how: 'pushState' | 'replaceState', state: unknown, fragment: string): void {
  try {
    history[how](state, '', new URL(`#${fragment}`, location.href))
  } catch {
    // A browser that rejects this address, or so many of them, keeps the old one: only undo and redo need it.
  }
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
