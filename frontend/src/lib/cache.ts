/** Keeps the promises of the last few answers, so that going back costs nothing. A failed answer is forgotten. */
export class Cache<T> {
  #entries = new Map<string, Promise<T>>()
  #settled = new Map<string, T>()

  constructor(private readonly capacity: number) {}

  get(key: string, make: () => Promise<T>): Promise<T> {
    const known = this.#entries.get(key)
    if (known) {
      this.#entries.delete(key)
      this.#entries.set(key, known)
      return known
    }
    const made = make()
    this.#entries.set(key, made)
    made.then(
      (value) => this.#entries.get(key) === made && this.#settled.set(key, value),
      () => this.#entries.get(key) === made && this.#entries.delete(key),
    )
    this.#evict()
    return made
  }

  /** The answer if it is already here: what can be drawn in this very frame. */
  peek(key: string): T | undefined {
    return this.#settled.get(key)
  }

  clear(): void {
    this.#entries.clear()
    this.#settled.clear()
  }

  #evict(): void {
    for (const key of this.#entries.keys()) {
      if (this.#entries.size <= this.capacity) return
      this.#entries.delete(key)
      this.#settled.delete(key)
    }
  }
}
