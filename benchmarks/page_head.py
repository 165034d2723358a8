"""One open head at 512 and 2,048 tokens: times from the event to the frame, DOM nodes, memory.

Budgets at 512 tokens: another head opens within 60 ms, a hover is painted within 16 ms, a graph of 2,000 curves within 50 ms. At 2,048 tokens a head opens within
150 ms, of which `arrived_ms` are after its map arrived, and a hover is painted within 32 ms. At most 3,000 nodes and 400 MB.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser
from tests.support.chromium import chromium
from tests.support.models import tiny_model
from tests.support.server import Server

from .bare import BarePage
from .browsing import ACT, MARKED, OPEN
from .common import judged
from .page import LONGEST_MS, text_of

REPEATS = 11
MB = 1e6
# Tokens -> milliseconds for another head and for a hover.
BUDGETS = {512: (60, 16), 2048: (150, 32)}
GRAPH_MS, ARRIVED_MS, MOST_NODES = 50, 150, 3000
# Heads and width of the model, which has two layers.
SMALLEST: dict[str, Any] = {"lengths": (16,), "repeats": 1, "shape": (8, 32)}


def measure(
    lengths: tuple[int, ...] = (512, 2048), repeats: int = REPEATS, shape: tuple[int, int] = (24, 768)
) -> list[dict[str, Any]]:
    """Return a row per length."""
    with tempfile.TemporaryDirectory() as folder:
        heads, width = shape
        tiny_model(Path(folder) / "models" / "few", "bert", layers=2, heads=heads, width=width, positions=2048)
        with Server(Path(folder) / "home", Path(folder) / "models") as server, chromium() as browser:
            return [_head(server, browser, length, min(repeats, heads // 2 - 1)) for length in lengths]


def _head(server: Server, browser: Browser, tokens: int, repeats: int) -> dict[str, Any]:
    # Keys per query for about 2,000 curves.
    rule = f"rule=top-k&k={max(1, 2048 // tokens)}&view=map"
    page = BarePage(
        browser, f"http://{server.url}/#model=few&head=0.0&{rule}&text={quote(text_of(tokens))}", LONGEST_MS
    )
    page.run(MARKED, "headscope:head")
    time.sleep(2)  # for prefetching
    another, arrived, hovered, drawn = [], [], [], []
    for turn in range(repeats):
        total, after = page.on(f"[role=gridcell][aria-label='Layer 1, head {2 * turn + 1}']", OPEN)
        another.append(float(total))
        arrived.append(float(after))
        hovered.append(float(page.on("[role=application]", ACT, ["pointermove", 0.3 + 0.05 * turn, 0.5, "hover"])))
        drawn.append(float(page.on("input[value=graph]", ACT, ["click", 0.5, 0.5, "graph"])))
        page.on("input[value=map]", ACT, ["click", 0.5, 0.5, "head"])
    nodes, memory = page.size()
    page.close()
    another_ms, hover_ms = BUDGETS.get(tokens, BUDGETS[2048])
    return {
        "what": f"a head at {tokens} tokens",
        **judged("another_head_ms", another, another_ms),
        **judged("arrived_ms", arrived, ARRIVED_MS),
        **judged("hover_ms", hovered, hover_ms),
        **judged("graph_ms", drawn, GRAPH_MS),
        "nodes": nodes,
        "nodes_of_budget": f"{nodes / MOST_NODES:.2f}",
        "renderer_mb": f"{memory / MB:.0f}",
    }
