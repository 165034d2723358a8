/** What is read of long maps beside their overviews: parts, whole rows and columns, and sums. */
import { type Detail, type Part, partName } from '../lib/maths/details'
import type { Matrix, Sums } from '../lib/maths/matrix'
import { Cache } from '../lib/net/cache'

/** Parts and lines that are kept of each map, and maps of which they are kept: two are on screen. */
const PARTS = 6
const LINES = 12
const MAPS = 2
const NONE: readonly Detail[] = []

export class MapParts {
  /** Changes whenever something arrives; reading it subscribes a view. */
  #arrivals = $state(0)
  /** By map, the last read first. */
  readonly #kept = { details: new Map<string, readonly Detail[]>(), lines: new Map<string, readonly Detail[]>() }
  /** What is being read, or has been. */
  readonly #read = { details: new Cache<Detail>(MAPS * PARTS), lines: new Cache<Detail>(MAPS * LINES) }
  readonly #sums = new Cache<Sums>(32)

  constructor(private readonly failed: (error: unknown) => void) {}

  details(key: string): readonly Detail[] {
    void this.#arrivals
    return this.#kept.details.get(key) ?? NONE
  }

  lines(key: string): readonly Detail[] {
    void this.#arrivals
    return this.#kept.lines.get(key) ?? NONE
  }

  sums(key: string): Sums | undefined {
    void this.#arrivals
    return this.#sums.peek(key)
  }

  want(key: string, part: Part, fetch: (signal: AbortSignal) => Promise<Matrix>, until?: AbortSignal): Promise<void> {
    return this.#want('details', PARTS, key, part, fetch, until)
  }

  wantLine(key: string, part: Part, fetch: () => Promise<Matrix>): Promise<void> {
    return this.#want('lines', LINES, key, part, fetch)
  }

  async wantSums(key: string, fetch: (signal: AbortSignal) => Promise<Sums>, until: AbortSignal): Promise<void> {
    if (this.#sums.peek(key)) return
    await this.#sums.get(key, fetch, until).then(() => this.#announce(), this.#failed(until))
  }

  /** What is aborted has not failed. */
  #failed(until: AbortSignal | undefined): (error: unknown) => void {
    return (error) => {
      if (!until?.aborted) this.failed(error)
    }
  }

  async #want(
    kind: 'details' | 'lines',
    most: number,
    key: string,
    part: Part,
    fetch: (signal: AbortSignal) => Promise<Matrix>,
    until?: AbortSignal,
  ) {
    const known = this.#kept[kind]
    const read = async (signal: AbortSignal) => ({ ...part, map: await fetch(signal) })
    const detail = await this.#read[kind].get(`${key} ${partName(part)}`, read, until).catch(this.#failed(until))
    if (!detail || known.get(key)?.includes(detail)) return
    const kept = [detail, ...(known.get(key) ?? [])].slice(0, most)
    known.delete(key)
    known.set(key, kept)
    for (const old of [...known.keys()].slice(0, -MAPS)) known.delete(old)
    this.#announce()
  }

  #announce(): void {
    this.#arrivals += 1
  }
}
