/** Preferences of this browser. Without storage they last as long as the page. */
export function recall(key: string): string | null {
  try {
    return localStorage.getItem(`headscope.${key}`)
  } catch {
    return null
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(`headscope.${key}`, value)
  } catch {
    // Private windows have no storage.
  }
}
