/** Files that come by hand: dropped anywhere on the page, or pasted. Answers how to stop. */
export function takeFiles(take: (file: File) => void): () => void {
  const took = (event: Event, data: DataTransfer | null): void => {
    const file = data?.files[0]
    if (!file) return
    event.preventDefault()
    take(file)
  }
  // Otherwise the browser leaves the page and shows the file.
  const over = (event: DragEvent): void => {
    if (event.dataTransfer?.types.includes('Files')) event.preventDefault()
  }
  const drop = (event: DragEvent): void => took(event, event.dataTransfer)
  const paste = (event: ClipboardEvent): void => took(event, event.clipboardData)
  window.addEventListener('dragover', over)
  window.addEventListener('drop', drop)
  window.addEventListener('paste', paste)
  return () => {
    window.removeEventListener('dragover', over)
    window.removeEventListener('drop', drop)
    window.removeEventListener('paste', paste)
  }
}
