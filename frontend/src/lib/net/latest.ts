/** Run a task so that only the last call counts: earlier calls are aborted and return undefined. */
export function latest<A extends unknown[], T>(
  task: (signal: AbortSignal, ...args: A) => Promise<T>,
): { (...args: A): Promise<T | undefined>; stop(): void } {
  let current: AbortController | undefined
  const run = async (...args: A): Promise<T | undefined> => {
    current?.abort()
    const mine = new AbortController()
    current = mine
    try {
      const answer = await task(mine.signal, ...args)
      return mine.signal.aborted ? undefined : answer
    } catch (error) {
      if (mine.signal.aborted) return undefined
      throw error
    }
  }
  return Object.assign(run, { stop: () => current?.abort() })
}
