/** Keys with which anybody may read something of this reader's, until they are taken back. */
export interface Shares {
  /** A key to what has that id, the same each time. */
  share(id: string): Promise<string>
  unshare(id: string): Promise<void>
}
