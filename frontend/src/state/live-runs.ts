/** Analyses asked for while somebody typed: each is forgotten once it is neither on screen nor on its way there, and nobody has asked for it on purpose. */
export class LiveRuns {
  /** What ends the reading of each. */
  #ids = new Map<string, AbortController>()
  #kept = new Set<string>()

  constructor(private readonly forget: (id: string) => Promise<void>) {}

  /** Somebody pressed the button for this one. */
  keep(id: string): void {
    this.#kept.add(id)
    this.#ids.delete(id)
  }

  /** This one was only passed through; `reading` is what is still read of it. */
  add(id: string, reading: AbortController): void {
    if (!this.#kept.has(id)) this.#ids.set(id, reading)
  }

  /** Forgets all but these. */
  sweep(...needed: (string | undefined)[]): void {
    for (const [id, reading] of this.#ids) {
      if (needed.includes(id)) continue
      this.#ids.delete(id)
      reading.abort()
      void this.forget(id).catch(() => {})
    }
  }
}
