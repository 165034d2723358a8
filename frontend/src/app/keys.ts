/** The keyboard outside of any figure. Keys typed into a field are left to it, except Escape. */
export interface Keys {
  /** What single keys do. */
  plain: Readonly<Record<string, () => unknown>>
  escape: () => void
  undo?: () => void
  redo?: () => void
  /** Arrows; answers whether there was somewhere to go. */
  walk?: (key: string, more: boolean) => boolean
}

const typing = (target: EventTarget | null) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName))

/** A sheet closes itself, and nothing behind it should hear. Asked of the page: what a sheet tells of its end comes after the key that follows at once. */
const sheetOpen = () => document.querySelector('dialog[open]') !== null

export function handleKey(keys: Keys): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.defaultPrevented || event.altKey || sheetOpen()) return
    if (event.ctrlKey || event.metaKey) return undoing(event, keys)
    if (event.key === 'Escape') return keys.escape()
    if (typing(event.target)) return
    const action = keys.plain[event.key]
    if (action) {
      event.preventDefault()
      action()
    } else if (event.key.startsWith('Arrow') && keys.walk?.(event.key, event.shiftKey)) event.preventDefault()
  }
}

/** Ctrl+Z and Ctrl+Shift+Z, or Ctrl+Y, go through what was chosen; in a field they stay the field's own. */
function undoing(event: KeyboardEvent, { undo, redo }: Keys): void {
  const key = event.key.toLowerCase()
  if (!undo || !redo || typing(event.target) || (key !== 'z' && key !== 'y')) return
  event.preventDefault()
  if (key === 'y' || event.shiftKey) redo()
  else undo()
}
