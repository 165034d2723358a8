"""Live analysis while typing: from the last key to the painted grid, MiniLM, loaded, in Chromium. The budget is 150 ms.

`pause_ms` is how long the page waits for another key, `compute_ms` the compute time that the server reports, `rest_ms` everything else: requests, the queue, storing
the result, drawing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page
from tests.support.chromium import chromium
from tests.support.server import Server

from .browsing import marked
from .common import Spread, judged
from .page import LONGEST_MS

REPEATS = 20
BUDGET_MS = 150
SMALLEST: dict[str, Any] = {"repeats": 1}
WORDS = "bank river money night light stone water paper table glass music field horse green small under after where those which".split()
# Times of the last key, and of the first painted grid whose tokens contain the new word.
LISTEN = "addEventListener('input', () => { globalThis.lastKey = performance.now() }, true)"
PAINTED = """(word) => new Promise((resolve) => {
  let since
  const look = (frame) => {
    const said = document.querySelector('[role=toolbar][aria-label=Tokens]').textContent
    if (said.toLowerCase().includes(word)) since ??= frame
    const after = (name, time) => performance.getEntriesByName(`headscope:${name}`).find(({ startTime }) => startTime >= time)?.startTime
    const painted = since && after('grid', since)
    painted ? resolve([after('submit', lastKey) - lastKey, painted - lastKey]) : requestAnimationFrame(look)
  }
  requestAnimationFrame(look)
})"""


def measure(repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Return one row."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(Path(folder), prewarm=True, threads=0) as server,
        chromium() as browser,
    ):
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"http://{server.url}/#text=The+bank+by+the+river")
        marked(page, "headscope:head", LONGEST_MS)
        return [_row(server, page, repeats)]


def _row(server: Server, page: Page, repeats: int) -> dict[str, Any]:
    page.evaluate(LISTEN)
    text = page.get_by_role("textbox", name="Text", exact=True)
    text.press("End")
    found: list[tuple[float, float, float]] = []
    for word in WORDS[:repeats]:
        page.wait_for_timeout(400)  # for prefetching
        for letter in f" {word}":
            page.keyboard.press("Space" if letter == " " else letter)
        pause, painted = page.evaluate(PAINTED, word)
        newest = server.get("/analyses?limit=1").json()["items"][0]["id"]
        found.append((painted, pause, server.get(f"/analyses/{newest}").json()["timing_ms"]["total"]))
    total, pauses, computed = (list(column) for column in zip(*found, strict=True))
    rest = [whole - pause - work for whole, pause, work in found]
    return {
        **judged("key_to_grid_ms", total, BUDGET_MS),
        "pause_ms": Spread.of(pauses).text(),
        "compute_ms": Spread.of(computed).text(),
        "rest_ms": Spread.of(rest).text(),
    }
