"""Grids of 270, 1,024 and 2,304 heads, which scroll, and 270 heads of a causal model: bytes before the first paint, times from the event to the frame,
frames per second, DOM nodes, memory.

Budgets: at most 0.4 MB before the first paint, another head within 60 ms, at least 50 frames per second, and at most 3,000 nodes and 400 MB.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser
from tests.support.chromium import chromium
from tests.support.models import Family, tiny_model
from tests.support.server import Server

from .browsing import first_bytes, frames, marked, opened, renderer
from .common import Spread, judged
from .page import LONGEST_MS, text_of

REPEATS = 7
# Family, layers and heads.
Shape = tuple[Family, int, int]
SHAPES: tuple[Shape, ...] = (("bert", 30, 9), ("gpt2", 30, 9), ("bert", 32, 32), ("bert", 48, 48))
SMALLEST: dict[str, Any] = {"shapes": (("bert", 2, 4),), "tokens": 8, "repeats": 1}
HEAD_MS, FIRST_KB, MOST_NODES = 60, 400, 3000
KEYS = ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp")
MB = 1e6


def measure(shapes: tuple[Shape, ...] = SHAPES, tokens: int = 128, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Return one row per shape."""
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        for family, layers, heads in shapes:
            tiny_model(models / f"{family}-{layers}-{heads}", family, layers=layers, heads=heads, width=4 * heads)
        with Server(Path(folder) / "home", models) as server, chromium() as browser:
            return [_row(server, browser, shape, tokens, repeats) for shape in shapes]


def _row(server: Server, browser: Browser, shape: Shape, tokens: int, repeats: int) -> dict[str, Any]:
    family, layers, heads = shape
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"http://{server.url}/#model={family}-{layers}-{heads}&head=0.0&view=map&text={quote(text_of(tokens))}")
    marked(page, "headscope:head", LONGEST_MS)
    transferred = first_bytes(page)
    page.wait_for_timeout(2000)  # for prefetching
    grid = page.get_by_role("grid", name="Heads")
    another: list[float] = []
    walked: list[float] = []
    for turn in range(repeats):
        place = f"Layer {turn % layers}, head {(2 + 3 * turn) % heads}"
        head = page.get_by_role("gridcell", name=place, exact=True)
        another.append(opened(head)[1])
        walked.append(float(page.evaluate(WALK, KEYS[turn % len(KEYS)])))
    rates = [frames(grid) for _ in range(min(3, repeats))]
    nodes, memory = renderer(page)
    page.close()
    return {
        "heads": layers * heads,
        "family": family,
        **judged("kb_before_first_paint", [transferred / 1000], FIRST_KB),
        **judged("another_head_ms", another, HEAD_MS),
        "arrow_key_ms": Spread.of(walked).text(),
        "frames_per_second": Spread.of(rates).text(),
        "nodes": nodes,
        "nodes_of_budget": f"{nodes / MOST_NODES:.2f}",
        "renderer_mb": f"{memory / MB:.0f}",
    }


# From an arrow key to the frame in which another head has the focus.
WALK = """(key) => new Promise((resolve) => {
  const from = document.querySelector('[role=gridcell].open')
  from.focus()
  const began = performance.now()
  from.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }))
  const look = () => (document.activeElement !== from ? resolve(performance.now() - began) : requestAnimationFrame(look))
  requestAnimationFrame(look)
})"""
