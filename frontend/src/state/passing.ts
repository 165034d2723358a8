/** Analyses asked for while somebody typed: each is forgotten once it is neither on screen nor on its way there, and nobody has asked for it on purpose. */
export class Passing {
  #ids = new Set<string>()
  #kept = new Set<string>()

  constructor(private readonly forget: (id: string) => Promise<void>) {}

  /** Somebody pressed the button for this one. */
  keep(id: string): void {
    this.#kept.add(id)
    this.#ids.delete(id)
  }

  /** This one was only passed through. */
  add(id: string): void {
    if (!this.#kept.has(id)) this.#ids.add(id)
  }

  /** Forgets all but these. */
  sweep(...needed: (string | undefined)[]): void {
    for (const id of this.#ids) {
      if (needed.includes(id)) continue
      this.#ids.delete(id)
      void this.forget(id).catch(() => {})
    }
  }
}
