/** Keys that let anyone read an analysis or study of this reader until they are revoked. */
export interface Shares {
  /** The key to an analysis or study; always the same one. */
  share(id: string): Promise<string>
  unshare(id: string): Promise<void>
}
