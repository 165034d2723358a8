"""Time from pressing Analyse to the painted grid, in Chromium, next to the server's own compute time; and bytes transferred before the first paint.

A random model with the layers and heads of BERT-base (144 heads of 64 dimensions), loaded; every repeat has a new text. `overhead` is the time beyond the compute time
that the server reports; its target is 250 ms. The target for bytes before the first paint is 0.4 MB.
"""

from __future__ import annotations

import string
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from tests.support.chromium import chromium
from tests.support.models import tiny_model
from tests.support.server import Server

from .browsing import marked, times
from .common import Spread

# Tokens -> repeats: the longest takes the server a minute per repeat.
LENGTHS = {64: 5, 512: 5, 2048: 3}
SMALLEST: dict[str, Any] = {"lengths": {8: 1}, "width": 48}
LONGEST_MS = 400_000
_fresh = count()


def text_of(tokens: int) -> str:
    """Return a new text with one token per letter and two special tokens."""
    start = next(_fresh)
    letters = string.ascii_lowercase
    return " ".join(letters[(start * 7 + i * (1 + start % 5)) % 26] for i in range(tokens - 2))


def measure(lengths: Mapping[int, int] = LENGTHS, width: int = 768) -> list[dict[str, Any]]:
    """Return one row per length."""
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        tiny_model(models / "base", "bert", layers=12, heads=12, width=width, positions=2048)
        with Server(Path(folder) / "home", models) as server, chromium() as browser:
            return [{"tokens": length, **_row(server, browser, length, repeats)} for length, repeats in lengths.items()]


def _row(server: Server, browser: Browser, length: int, repeats: int) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"http://{server.url}/#model=base&text=a+warm+model")
    marked(page, "headscope:graph", LONGEST_MS)
    live = page.get_by_role("checkbox", name="live")
    if live.is_checked():  # text must not be analysed while it is typed
        live.uncheck()
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    received: list[int] = []
    session.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
    session.on("Network.responseReceived", lambda event: received.append(len(str(event["response"]["headers"]))))
    painted, overhead, wire = [], [], []
    for turn in range(repeats + 1):
        page.get_by_role("textbox", name="Text", exact=True).fill(text_of(length))
        page.evaluate("performance.clearMarks()")
        received.clear()
        page.get_by_role("button", name="Analyse").click()
        marked(page, "headscope:grid", LONGEST_MS)
        before = sum(received)
        marked(page, "headscope:graph", LONGEST_MS)
        _quiet(page, received)
        if turn:
            at = times(page)
            newest = server.get("/analyses?limit=1").json()["items"][0]["id"]
            document = server.get(f"/analyses/{newest}").json()
            assert len(document["tokens"]) == length, page.get_by_role("alert").all_inner_texts()
            computed = document["timing_ms"]["total"]
            painted.append(at["headscope:grid"] - at["headscope:submit"])
            overhead.append(painted[-1] - computed)
            wire.append(before)
    page.close()
    return {
        "grid_painted_ms": Spread.of(painted).text(),
        "overhead_ms": Spread.of(overhead).text(),
        "kb_before_first_paint": Spread.of(wire).text(1e-3),
    }


def _quiet(page: Page, received: list[int]) -> None:
    """Wait until the page has prefetched everything, so that it is not counted with the next text."""
    before = -1
    while before != len(received):
        before = len(received)
        page.wait_for_timeout(700)
