/** A conversation as text: a message begins on a line with the role of its author, such as `user: Hello`. */
import type { Message } from '../data/analysis'

const BEGINS = /^(system|user|assistant): ?/
/** A line of a message that looks like the beginning of another has a backslash before it. */
const ESCAPED = /^\\(?=\\*(system|user|assistant):)/
const TO_ESCAPE = /^(?=\\*(system|user|assistant):)/

/** Undefined if a message is empty. Without a role at its beginning, the text is the user's. */
export function parseMessages(text: string): Message[] | undefined {
  const found: Message[] = []
  for (const line of text.split('\n')) {
    const role = BEGINS.exec(line)
    if (role) found.push({ role: role[1] as Message['role'], content: line.slice(role[0].length) })
    else if (found.length === 0) found.push({ role: 'user', content: line.replace(ESCAPED, '') })
    else found[found.length - 1].content += `\n${line.replace(ESCAPED, '')}`
  }
  return found.every(({ content }) => content.trim() !== '') ? found : undefined
}

export const writeMessages = (messages: readonly Message[]): string =>
  messages
    .map(({ role, content }) => {
      const [first, ...rest] = content.split('\n')
      return [`${role}: ${first}`, ...rest.map((line) => line.replace(TO_ESCAPE, '\\'))].join('\n')
    })
    .join('\n')
