/** The keyboard outside of any figure. Keys typed into a field are left to it, except Escape. */
export interface KeyActions {
  help: () => void
  text: () => void
  lens: (step: number) => void
  compare: () => void
  history: () => void
  examples: () => void
  undo: () => void
  redo: () => void
  escape: () => void
  find: () => void
  walk: (key: string, more: boolean) => boolean
  sheet: () => boolean
}

const typing = (target: EventTarget | null) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName))

export function handleKey(actions: KeyActions): (event: KeyboardEvent) => void {
  const keys: Record<string, () => unknown> = {
    '?': actions.help,
    '/': actions.text,
    '[': () => actions.lens(-1),
    ']': () => actions.lens(1),
    c: actions.compare,
    h: actions.history,
    e: actions.examples,
    f: actions.find,
  }
  return (event) => {
    // An open sheet closes itself; nothing behind it should hear.
    if (event.defaultPrevented || event.altKey || actions.sheet()) return
    if (event.ctrlKey || event.metaKey) return undoing(event, actions)
    if (event.key === 'Escape') return actions.escape()
    if (typing(event.target)) return
    const action = keys[event.key]
    if (action) {
      event.preventDefault()
      action()
    } else if (event.key.startsWith('Arrow') && actions.walk(event.key, event.shiftKey)) event.preventDefault()
  }
}

/** Ctrl+Z and Ctrl+Shift+Z, or Ctrl+Y, go through what was chosen; in a field they stay the field's own. */
function undoing(event: KeyboardEvent, { undo, redo }: KeyActions): void {
  const key = event.key.toLowerCase()
  if (typing(event.target) || (key !== 'z' && key !== 'y')) return
  event.preventDefault()
  if (key === 'y' || event.shiftKey) redo()
  else undo()
}
