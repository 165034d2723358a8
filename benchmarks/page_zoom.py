"""Deep zoom into one head at 512 to 32,768 tokens: times from the event to the frame, bytes before the first paint, memory of the page.

A random model of the shape of GPT-2 with two layers. Budgets: a zoom or pan step is painted within 50 ms, a hover within 16 ms. Another head is painted within
60, 100 and 150 ms at 512, 2,048 and more tokens: `another_ms` until something is drawn of it, which may be coarse, `visible_ms` until the part of it that a
window of 200 tokens shows is sharp, and `whole_ms` until its overview is, which has no budget. At most 400 kB are read before the first paint.
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
from .browsing import BYTES, MARKED
from .common import Spread, judged

# An analysis of the longest takes minutes.
LENGTHS = (512, 2048, 8192, 32768)
REPEATS = 7
SMALLEST: dict[str, Any] = {"lengths": (64,), "repeats": 1, "shape": (4, 32)}
LONGEST_MS = 900_000
MB = 1e6
STEP_MS, HOVER_MS, FIRST_KB = 50, 16, 400
HEAD_MS = {512: 60, 2048: 100}
LONG_HEAD_MS = 150
# Milliseconds from what `act` does with an element to the first of some marks after it.
UNTIL = """(element, act, names) => new Promise((resolve) => {
  const began = performance.now()
  act(element)
  const look = () => {
    const marks = names.flatMap((name) => performance.getEntriesByName(`headscope:${name}`)).filter(({ startTime }) => startTime > began)
    if (marks.length === 0) return requestAnimationFrame(look)
    resolve(Math.min(...marks.map(({ startTime }) => startTime)) - began)
  }
  look()
})"""
PAINTED = '["head", "coarse"]'


def _event(kind: str, make: str) -> str:
    """Return a function that dispatches an event at a place in an element, in fractions of its box."""
    at = "{ clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true, cancelable: true, ...more }"
    return f"(element, [x, y, more]) => {{ const box = element.getBoundingClientRect(); element.dispatchEvent(new {make}('{kind}', {at})) }}"


def _until(act: str, names: str) -> str:
    return f"(element, ...rest) => ({UNTIL})(element, (element) => ({act})(element, rest), {names})"


OPEN_COARSE, OPEN_SHARP = (
    _until("(element) => element.click()", PAINTED),
    _until("(element) => element.click()", '["head"]'),
)
ZOOM = _until(_event("wheel", "WheelEvent"), PAINTED)
HOVER = _until(_event("pointermove", "PointerEvent"), '["hover"]')
DRAG = _until(_event("pointermove", "PointerEvent"), PAINTED)
PRESS, RELEASE = (
    f"(element, ...rest) => ({_event(kind, 'PointerEvent')})(element, rest)" for kind in ("pointerdown", "pointerup")
)
HAND = "[role=application]"


def measure(
    lengths: tuple[int, ...] = LENGTHS, repeats: int = REPEATS, shape: tuple[int, int] = (12, 768)
) -> list[dict[str, Any]]:
    """Return a row per length."""
    with tempfile.TemporaryDirectory() as folder:
        heads, width = shape
        tiny_model(Path(folder) / "models" / "deep", "gpt2", layers=2, heads=heads, width=width, positions=max(lengths))
        with Server(Path(folder) / "home", Path(folder) / "models", job_seconds=3600) as server, chromium() as browser:
            return [_row(server, browser, length, min(repeats, heads - 2)) for length in lengths]


def _text(tokens: int) -> str:
    """Return sentences with at least so many tokens."""
    return " ".join(f"Sentence {i} has a name, {i % 7}." for i in range(tokens // 12 + 1))


def _row(server: Server, browser: Browser, tokens: int, repeats: int) -> dict[str, Any]:
    address = f"http://{server.url}/#model=deep&head=0.0&view=map&most={tokens}&text={quote(_text(tokens))}"
    page = BarePage(browser, address, LONGEST_MS)
    page.run(MARKED, "headscope:head")
    first = page.run(BYTES)
    time.sleep(2)  # for sums, and for the text
    cell = "[role=gridcell][aria-label='Layer 1, head {}']"
    whole = [float(page.on(cell.format(head), OPEN_SHARP)) for head in range(1, 3)]
    zoomed, panned, another, visible = [], [], [], []
    for _ in range(repeats):
        zoomed.append(float(page.on(HAND, ZOOM, 0.6, 0.4, {"deltaY": -100, "ctrlKey": True})))
        time.sleep(0.3)
    for turn in range(repeats):
        held = {"button": 0, "pointerId": 1, "pointerType": "mouse"}
        page.on(HAND, PRESS, 0.6, 0.6, held)
        panned.append(float(page.on(HAND, DRAG, 0.5 + 0.005 * turn, 0.55, held)))
        page.on(HAND, RELEASE, 0.5, 0.5, held)
        time.sleep(0.3)
    places = [0.3 + 0.05 * turn for turn in range(repeats)]
    hovered = [float(page.on(HAND, HOVER, across, 0.5, {"pointerType": "mouse"})) for across in places]
    page.run("(size) => { location.hash = `${location.hash}&zoom=0.4 0.4 ${size}` }", min(1.0, 200 / tokens))
    time.sleep(1)
    for turn in range(repeats):
        at = cell.format(turn + 1).replace("Layer 1", "Layer 0")
        another.append(float(page.on(at, OPEN_COARSE)))
        time.sleep(1)
        visible.append(float(page.on(at.replace("Layer 0", "Layer 1"), OPEN_SHARP)))
        time.sleep(1)
    nodes, memory = page.size()
    page.close()
    head_ms = HEAD_MS.get(tokens, LONG_HEAD_MS)
    return {
        "tokens": tokens,
        **judged("zoom_ms", zoomed, STEP_MS),
        **judged("pan_ms", panned, STEP_MS),
        **judged("hover_ms", hovered, HOVER_MS),
        **judged("another_ms", another, head_ms),
        **judged("visible_ms", visible, head_ms),
        "whole_ms": Spread.of(whole).text(),
        **judged("kb_before_first_paint", [first / 1000], FIRST_KB),
        "nodes": nodes,
        "renderer_mb": f"{memory / MB:.0f}",
    }
