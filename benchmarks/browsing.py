"""Measurements in a browser: times between marks of the page, memory of the renderer, frames per second while scrolling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
from playwright.sync_api import CDPSession, Locator, Page

# Time from an event dispatched inside the page, so that no round trip of the driver is counted, to the first mark after it.
ACT = """(element, [kind, across, down, name]) => new Promise((resolve) => {
  const box = element.getBoundingClientRect()
  const at = { clientX: box.left + across * box.width, clientY: box.top + down * box.height, bubbles: true, button: 0, pointerType: 'mouse' }
  const began = performance.now()
  if (kind === 'click') element.click()
  else element.dispatchEvent(new PointerEvent(kind, at))
  const look = () => {
    const mark = performance.getEntriesByName(`headscope:${name}`).find(({ startTime }) => startTime > began)
    mark ? resolve(mark.startTime - began) : requestAnimationFrame(look)
  }
  look()
})"""
# Milliseconds from a click on a head to its painted exact map, and from the arrival of that map; the same if it had been prefetched.
OPEN = """(element) => new Promise((resolve) => {
  performance.clearResourceTimings()
  const began = performance.now()
  element.click()
  const look = () => {
    const mark = performance.getEntriesByName('headscope:head').find(({ startTime }) => startTime > began)
    if (!mark) return requestAnimationFrame(look)
    const arrivals = performance.getEntriesByType('resource').filter(({ name, responseEnd }) => name.includes('/maps/') && responseEnd <= mark.startTime)
    resolve([mark.startTime - began, mark.startTime - Math.max(began, ...arrivals.slice(0, 1).map(({ responseEnd }) => responseEnd))])
  }
  look()
})"""
# Wait for a mark.
MARKED = """(name) => new Promise((resolve) => {
  const look = () => (performance.getEntriesByName(name).length > 0 ? resolve(true) : setTimeout(look, 50))
  look()
})"""
# Bytes that arrived between the request of an analysis and the first paint of its heads, as in `page`.
BYTES = """() => {
  const [from, to] = ['submit', 'grid'].map((name) => performance.getEntriesByName(`headscope:${name}`)[0].startTime)
  const needed = performance.getEntriesByType('resource').filter(({ startTime, responseEnd }) => startTime >= from && responseEnd <= to)
  return needed.reduce((sum, { transferSize }) => sum + transferSize, 0)
}"""
# Frames in one second of scrolling the nearest scrollable element by a few pixels per frame.
SCROLL = """(element) => new Promise((resolve) => {
  let holder = element
  while (holder && holder.scrollHeight <= holder.clientHeight + 1) holder = holder.parentElement
  holder ??= document.scrollingElement
  const room = holder.scrollHeight - holder.clientHeight
  let frames = 0
  const began = performance.now()
  const step = (now) => {
    frames += 1
    const there = (frames * 12) % (2 * room)
    holder.scrollTop = there < room ? there : 2 * room - there
    now - began < 2000 ? requestAnimationFrame(step) : resolve((1000 * frames) / (now - began))
  }
  requestAnimationFrame(step)
})"""


def opened(head: Locator) -> tuple[float, float]:
    """Return the milliseconds from a click on a head to its painted exact map, and those after the map arrived."""
    total, after = head.evaluate(OPEN)
    return float(total), float(after)


def first_bytes(page: Page) -> int:
    """Return the bytes transferred between the request and the first paint of the grid."""
    return int(page.evaluate(BYTES))


def frames(element: Locator) -> float:
    """Return the frames per second while the element's container scrolls."""
    return float(element.evaluate(SCROLL))


def renderer(page: Page) -> tuple[int, int]:
    """Return the number of DOM nodes, and the bytes of memory of the page's process."""
    nodes = int(page.evaluate("document.querySelectorAll('*').length"))
    browser = page.context.browser
    return nodes, renderer_bytes(browser.new_browser_cdp_session()) if browser else 0


def renderer_bytes(whole: CDPSession) -> int:
    """Return the bytes of memory of the largest page of a browser, given a session with it."""
    processes = whole.send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [psutil.Process(process["id"]).memory_info().rss for process in processes if process["type"] == "renderer"]
    return max(sizes, default=0)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a local address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def marked(page: Page, name: str, timeout: float = 60_000) -> None:
    """Wait until the page has set that mark."""
    page.wait_for_function("(name) => performance.getEntriesByName(name).length > 0", arg=name, timeout=timeout)


def times(page: Page) -> dict[str, Any]:
    """Return the last time of each mark."""
    return dict(
        page.evaluate("Object.fromEntries(performance.getEntriesByType('mark').map((m) => [m.name, m.startTime]))")
    )
