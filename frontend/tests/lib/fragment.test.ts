import { afterEach, describe, expect, it, vi } from 'vitest'
import { writeFragment } from '../../src/lib/net/fragment'

const written = vi.fn<(state: unknown, unused: string, url: URL) => void>()

afterEach(() => {
  vi.unstubAllGlobals()
  written.mockReset()
})

function visit(href: string): void {
  vi.stubGlobal('location', { href })
  vi.stubGlobal('history', { pushState: written })
}

describe('the fragment in the address', () => {
  it.each(['about:srcdoc', 'about:srcdoc#head=1.2', 'file:///a.html', 'data:text/html,a'])(
    'belongs to %s itself',
    (href) => {
      visit(href)
      writeFragment('pushState', { step: 1 }, 'head=4.5')
      expect(String(written.mock.lastCall?.[2])).toBe(`${href.split('#')[0]}#head=4.5`)
    },
  )

  it('does not stop the page where the browser rejects it', () => {
    visit('about:srcdoc')
    written.mockImplementation(() => {
      throw new DOMException('too many', 'SecurityError')
    })
    writeFragment('pushState', null, 'head=4.5')
    expect(written).toHaveBeenCalledOnce()
  })
})
