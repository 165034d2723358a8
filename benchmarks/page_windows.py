"""How large the figure is in each window: the edge of the heat map in CSS pixels, the side of a head in the grid, and DOM nodes; MiniLM.

Nothing here is a time, so that one visit per window is enough.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Page
from tests.support.chromium import chromium
from tests.support.server import Server

from .browsing import marked, renderer
from .common import Spread
from .page import LONGEST_MS, text_of

WINDOWS = ((390, 844), (1024, 768), (1366, 768), (1440, 780), (1440, 900), (1920, 1080))
LENGTHS = (12, 128, 500)
SMALLEST: dict[str, Any] = {"windows": ((1366, 768),), "lengths": (8,)}
EDGE = "Math.max(0, ...[...document.querySelectorAll('[role=img][aria-label^=\"Heat map\"] canvas')].map((c) => c.getBoundingClientRect().width))"
CELL = "document.querySelector('[role=gridcell]').getBoundingClientRect().width"


def measure(windows: tuple[tuple[int, int], ...] = WINDOWS, lengths: tuple[int, ...] = LENGTHS) -> list[dict[str, Any]]:
    """Return one row per window."""
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server, chromium() as browser:
        page = browser.new_page()
        return [
            {"window": f"{width} x {height}", **_row(server, page, (width, height), lengths)}
            for width, height in windows
        ]


def _row(server: Server, page: Page, window: tuple[int, int], lengths: tuple[int, ...]) -> dict[str, Any]:
    page.set_viewport_size({"width": window[0], "height": window[1]})
    edges, beside, nodes = [], [], []
    for tokens in lengths:
        for compare, found in (("off", edges), ("side", beside)):
            page.goto("about:blank")
            page.goto(f"http://{server.url}/#compare={compare}&head=2.9&text={quote(text_of(tokens))}")
            marked(page, "headscope:head", LONGEST_MS)
            page.wait_for_timeout(300)
            found.append(float(page.evaluate(EDGE)))
            nodes.append(renderer(page)[0])
    return {
        "edge_px": Spread.of(edges).text(),
        "edge_side_by_side_px": Spread.of(beside).text(),
        "head_px": round(float(page.evaluate(CELL))),
        "most_nodes": max(nodes),
    }
