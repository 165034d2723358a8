/** Keyboard shortcuts outside of figures. Fields keep their keys, except Escape. */
export interface Keys {
  /** Shortcuts of single keys. */
  plain: Readonly<Record<string, () => unknown>>
  escape: () => void
  undo?: () => void
  redo?: () => void
  /** Arrow keys; returns whether there was a head to go to. */
  walk?: (key: string, more: boolean) => boolean
}

/** Inputs that accept no characters. */
const TEXTLESS = ['radio', 'checkbox', 'range', 'file', 'color']

/** Elements that use arrow keys themselves. */
const isField = (target: EventTarget | null): target is HTMLElement =>
  target instanceof HTMLElement &&
  (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName))

/** Elements that also use letters: to be typed, or to jump to a menu entry. */
const typing = (target: EventTarget | null) =>
  isField(target) && !(target instanceof HTMLInputElement && TEXTLESS.includes(target.type))

/** An open sheet closes itself, and shortcuts behind it are disabled. Read from the document, since its close event follows the next key. */
const sheetOpen = () => document.querySelector('dialog[open]') !== null

export function handleKey(keys: Keys): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.defaultPrevented || event.isComposing || sheetOpen()) return
    // Some keyboards type brackets with AltGr; with a letter the combination belongs to the browser.
    if (event.altKey && /^(\w|.{2,})$/.test(event.key)) return
    if (event.ctrlKey || event.metaKey) return undoing(event, keys)
    if (event.key === 'Escape') return keys.escape()
    if (typing(event.target)) return
    const action = keys.plain[event.key]
    if (action) {
      event.preventDefault()
      action()
    } else if (!isField(event.target) && event.key.startsWith('Arrow') && keys.walk?.(event.key, event.shiftKey))
      event.preventDefault()
  }
}

/** Ctrl+Z and Ctrl+Shift+Z or Ctrl+Y undo and redo choices; in a field they are the field's own. */
function undoing(event: KeyboardEvent, { undo, redo }: Keys): void {
  const key = event.key.toLowerCase()
  const written = typing(event.target) && !(event.target instanceof HTMLSelectElement)
  if (!undo || !redo || written || (key !== 'z' && key !== 'y')) return
  event.preventDefault()
  if (key === 'y' || event.shiftKey) redo()
  else undo()
}
