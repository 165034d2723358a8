/** Analyses requested while the reader types. Each is forgotten once it is neither on screen nor on its way there, unless it was also requested on purpose. */
export class LiveRuns {
  /** Aborts the reading of each. */
  #ids = new Map<string, AbortController>()
  #kept = new Set<string>()

  constructor(private readonly forget: (id: string) => Promise<void>) {}

  /** This one was requested on purpose. */
  keep(id: string): void {
    this.#kept.add(id)
    this.#ids.delete(id)
  }

  /** This one was requested while typing; `reading` aborts its pending reads. */
  add(id: string, reading: AbortController): void {
    if (!this.#kept.has(id)) this.#ids.set(id, reading)
  }

  /** Forget all but these. */
  sweep(...needed: (string | undefined)[]): void {
    for (const [id, reading] of this.#ids) {
      if (needed.includes(id)) continue
      this.#ids.delete(id)
      reading.abort()
      void this.forget(id).catch(() => {})
    }
  }
}
