/** What a reader chose for this browser. Without storage a choice lasts as long as the page. */
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
    // Private windows keep nothing.
  }
}
