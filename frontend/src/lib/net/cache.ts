import { SharedRequest } from './shared-request'

/** A least-recently-used cache of promises. A failed answer is evicted, and one that has not arrived is not. */
export class Cache<T> {
  #entries = new Map<string, Promise<T>>()
  readonly #requests = new WeakMap<Promise<T>, SharedRequest>()
  #settled = new Map<string, T>()

  /** Holds `capacity` answers, and more while their total size is at most `most`. `evicted` is called with each answer that is removed. */
  constructor(
    private readonly capacity: number,
    private readonly most = 0,
    private readonly sizeOf: (value: T) => number = () => 1,
    private readonly evicted: (value: T) => void = () => {},
  ) {}

  /** The signal of `make` is aborted once everyone who asked has aborted `until`, unless one gave none. */
  get(key: string, make: (signal: AbortSignal) => Promise<T>, until?: AbortSignal): Promise<T> {
    const known = this.#entries.get(key)
    if (known && !this.#requests.get(known)?.signal.aborted) {
      this.#requests.get(known)?.join(until)
      this.#entries.delete(key)
      this.#entries.set(key, known)
      return known
    }
    const request = new SharedRequest()
    request.join(until)
    const made = make(request.signal)
    this.#requests.set(made, request)
    this.#entries.set(key, made)
    made.then(
      (value) => this.#settle(key, made, value),
      () => this.#entries.get(key) === made && this.#entries.delete(key),
    )
    return made
  }

  /** The answer if it has already arrived, for drawing in this very frame. */
  peek(key: string): T | undefined {
    return this.#settled.get(key)
  }

  /** Take over the answers of another cache that have arrived and whose keys pass; return them. */
  inherit(other: Cache<T>, passes: (key: string) => boolean): T[] {
    const taken: T[] = []
    for (const [key, value] of other.#settled) {
      if (!passes(key) || this.#entries.has(key)) continue
      this.#entries.set(key, Promise.resolve(value))
      this.#settled.set(key, value)
      taken.push(value)
    }
    return taken
  }

  clear(): void {
    this.#entries.clear()
    this.#settled.clear()
  }

  #settle(key: string, made: Promise<T>, value: T): void {
    // An answer that has arrived is kept when its readers leave.
    this.#requests.delete(made)
    if (this.#entries.get(key) !== made) return
    // Its arrival is a use, as otherwise the parts that it was made of would evict it.
    this.#entries.delete(key)
    this.#entries.set(key, made)
    this.#settled.set(key, value)
    this.#evict()
  }

  #evict(): void {
    let size = 0
    for (const value of this.#settled.values()) size += this.sizeOf(value)
    for (const key of [...this.#entries.keys()]) {
      if (this.#settled.size <= this.capacity || size <= this.most) return
      const gone = this.#settled.get(key)
      if (gone === undefined) continue
      size -= this.sizeOf(gone)
      this.#entries.delete(key)
      this.#settled.delete(key)
      this.evicted(gone)
    }
  }
}
