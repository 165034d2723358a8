"""One open head at 512 and 2,048 tokens, and a scrolling grid of 1,024 heads: times from the event to the frame, DOM nodes, memory.

Targets at 512 tokens: a head opens within 150 ms, a hover is painted within 32 ms, a graph of 2,000 curves within 50 ms; at 2,048 tokens at most twice that. At
most 3,000 nodes and 400 MB; at least 50 frames per second while 32 x 32 heads at 256 tokens scroll.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, Page
from tests.support.chromium import chromium
from tests.support.models import tiny_model
from tests.support.server import Server

from .browsing import act, frames, marked, renderer
from .common import Spread
from .page import LONGEST_MS, text_of

REPEATS = 5
MB = 1e6
# Layers, heads and width of the two models.
Models = tuple[tuple[int, int, int], tuple[int, int, int]]
MODELS: Models = ((2, 12, 768), (32, 32, 512))
SMALLEST: dict[str, Any] = {"lengths": (16,), "repeats": 1, "models": ((2, 4, 32), (2, 4, 32))}


def measure(
    lengths: tuple[int, ...] = (512, 2048), repeats: int = REPEATS, models: Models = MODELS
) -> list[dict[str, Any]]:
    """Return a row per length, and one for the large grid."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "models"
        for name, (layers, heads, width), positions in zip(("few", "many"), models, (2048, 256), strict=True):
            tiny_model(place / name, "bert", layers=layers, heads=heads, width=width, positions=positions)
        with Server(Path(folder) / "home", place) as server, chromium() as browser:
            opened = [_head(server, browser, length, repeats) for length in lengths]
            return [*opened, _grid(server, browser, repeats)]


def _opened(server: Server, browser: Browser, model: str, tokens: int, more: str) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"http://{server.url}/#model={model}&head=0.0&{more}&text={quote(text_of(tokens))}")
    marked(page, "headscope:head", LONGEST_MS)
    page.wait_for_timeout(2000)  # for prefetching
    return page


def _head(server: Server, browser: Browser, tokens: int, repeats: int) -> dict[str, Any]:
    # Keys per query for about 2,000 curves.
    page = _opened(server, browser, "few", tokens, f"rule=top-k&k={max(1, 2048 // tokens)}&view=map")
    opened, hovered, drawn = [], [], []
    for turn in range(repeats):
        head = page.get_by_role("gridcell", name=f"Layer 1, head {2 * turn + 1}", exact=True)
        opened.append(act(head, "click", "head"))
        cells = page.get_by_role("application").first
        hovered.append(act(cells, "pointermove", "hover", 0.4 + 0.05 * turn, 0.5))
        drawn.append(act(page.get_by_role("radio", name="graph", exact=True), "click", "graph"))
        act(page.get_by_role("radio", name="heat map", exact=True), "click", "head")
    nodes, memory = renderer(page)
    page.close()
    return {
        "what": f"a head at {tokens} tokens",
        "another_head_ms": Spread.of(opened).text(),
        "hover_ms": Spread.of(hovered).text(),
        "graph_ms": Spread.of(drawn).text(),
        "nodes": nodes,
        "renderer_mb": f"{memory / MB:.0f}",
    }


def _grid(server: Server, browser: Browser, repeats: int) -> dict[str, Any]:
    page = _opened(server, browser, "many", 256, "view=map")
    grid = page.get_by_role("grid", name="Heads")
    rates = [frames(grid) for _ in range(repeats)]
    nodes, memory = renderer(page)
    page.close()
    return {
        "what": "a grid of heads at 256 tokens",
        "frames_per_second": Spread.of(rates).text(),
        "nodes": nodes,
        "renderer_mb": f"{memory / MB:.0f}",
    }
