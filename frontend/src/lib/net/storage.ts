/** Preferences of this browser. Without storage they last as long as the page. */
export function recall(key: string): string | null {
  try {
    return localStorage.getItem(`headscope.${key}`)
  } catch {
    return null
  }
}

export function remember(key: string, value: string): void {
  keep(key, value)
}

/** Store a value; false if there is no storage, as in private windows, or no room. */
export function keep(key: string, value: string): boolean {
  try {
    localStorage.setItem(`headscope.${key}`, value)
    return true
  } catch {
    return false
  }
}
