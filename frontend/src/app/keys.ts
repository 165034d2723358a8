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

/** What is chosen in them takes no characters. */
const TEXTLESS = ['radio', 'checkbox', 'range', 'file', 'color']

/** Keeps arrows for itself. */
const isField = (target: EventTarget | null): target is HTMLElement =>
  target instanceof HTMLElement &&
  (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName))

/** Keeps letters, too: to be written, or to jump to what begins with them in a menu. */
const typing = (target: EventTarget | null) =>
  isField(target) && !(target instanceof HTMLInputElement && TEXTLESS.includes(target.type))

/** A sheet closes itself, and nothing behind it should hear. Asked of the page: what a sheet tells of its end comes after the key that follows at once. */
const sheetOpen = () => document.querySelector('dialog[open]') !== null

export function handleKey(keys: Keys): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.defaultPrevented || event.isComposing || sheetOpen()) return
    // Brackets are typed with it on some keyboards; with a letter it is the browser's.
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

/** Ctrl+Z and Ctrl+Shift+Z, or Ctrl+Y, go through what was chosen; in a field they stay the field's own. */
function undoing(event: KeyboardEvent, { undo, redo }: Keys): void {
  const key = event.key.toLowerCase()
  const written = typing(event.target) && !(event.target instanceof HTMLSelectElement)
  if (!undo || !redo || written || (key !== 'z' && key !== 'y')) return
  event.preventDefault()
  if (key === 'y' || event.shiftKey) redo()
  else undo()
}
