/** A request of several readers, which is aborted once all of them have left. */
export class SharedRequest {
  #readers = 0
  readonly #controller = new AbortController()

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** The reader leaves when `until` is aborted; without it, never. One that joins in the same turn keeps the request. */
  join(until?: AbortSignal): void {
    this.#readers += 1
    const leave = () => {
      this.#readers -= 1
      if (this.#readers === 0) this.#controller.abort()
    }
    until?.addEventListener('abort', () => setTimeout(leave))
  }
}
