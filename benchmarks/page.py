"""Time from pressing Analyse to the painted grid, in Chromium, next to the server's own compute time; and bytes transferred before the first paint.

A random model of the shape of BERT-base (144 heads of 64 dimensions), loaded; every repeat has a new text. `grid_painted_ms` has a budget of 1.6 plain forward
passes and 150 ms. Plain passes (`plain_ms`: SDPA, as many tokens and threads) are computed before each repeat, in a process whose threads wait for one another as the
server's do. `computed_passes` is the compute time that the server reports, in plain passes, and `overhead` the time beyond it; its budget is 150 ms. `arrived_ms` is
the time from the arrival of the last of the data that the grid needs to its frame, with the same budget. `kept_mb` is what the server stores of the analysis, with
the budget of its length. The budget for bytes before the first paint is 400 kB.
"""

from __future__ import annotations

import string
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from tests.support.chromium import chromium
from tests.support.models import tiny_model
from tests.support.server import Server

from headscope import settings

from .browsing import marked, times
from .common import Spread, judged, ratios

# Tokens -> repeats, after one that does not count; the longest takes minutes, so its only one counts.
LENGTHS = {64: 5, 512: 5, 2048: 3, 8192: 1}
SMALLEST: dict[str, Any] = {"lengths": {8: 1}, "width": 48}
LONGEST_MS = 400_000
# The page prefetches maps of long texts after a second of rest.
QUIET_MS = 1500
OVERHEAD_MS, ARRIVED_MS, FIRST_KB = 150, 150, 400
# Plain forward passes from the button to the grid, besides OVERHEAD_MS.
PASSES = 1.6
# Tokens -> megabytes that may be kept for weights and effective attention.
KEPT_MB = {512: 85, 2048: 330, 8192: 1300}
# From the arrival of the thumbnails and the document, whichever came last, to the painted grid.
ARRIVED = """() => {
  const painted = performance.getEntriesByName('headscope:grid').at(-1).startTime
  const needed = performance.getEntriesByType('resource').filter(({ name, responseEnd }) => /analyses.[0-9a-f]{32}(.grid|$)/.test(name) && responseEnd <= painted)
  return painted - Math.max(...needed.map(({ responseEnd }) => responseEnd))
}"""
# Prints the milliseconds of a plain pass for every number of tokens that it reads.
PLAIN = """
import sys, time, torch
from transformers import AutoModel
plain = AutoModel.from_pretrained(sys.argv[1], attn_implementation="sdpa").eval()
for line in sys.stdin:
    ids = torch.randint(1000, (1, int(line))) % plain.config.vocab_size
    start = time.perf_counter()
    with torch.inference_mode():
        plain(ids)
    print((time.perf_counter() - start) * 1000, flush=True)
"""
_fresh = count()


class PlainPass:
    """A process that computes plain passes of a model. Its threads wait as those of the server do: others lose far more time on a busy machine."""

    def __init__(self, model: Path) -> None:
        self._model = model

    def __enter__(self) -> PlainPass:
        settings.limit_threads()
        command = [sys.executable, "-c", PLAIN, str(self._model)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def milliseconds(self, tokens: int) -> float:
        """Compute one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{tokens}\n")
        return float(self._process.stdout.readline())


def text_of(tokens: int) -> str:
    """Return a new text with one token per letter and two special tokens."""
    start = next(_fresh)
    letters = string.ascii_lowercase
    return " ".join(letters[(start * 7 + i * (1 + start % 5)) % 26] for i in range(tokens - 2))


def measure(lengths: Mapping[int, int] = LENGTHS, width: int = 768) -> list[dict[str, Any]]:
    """Return one row per length."""
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        base = tiny_model(
            models / "base", "bert", layers=12, heads=12, width=width, inner=4 * width, positions=max(2048, *lengths)
        )
        with (
            Server(Path(folder) / "home", models, threads=0) as server,
            chromium() as browser,
            PlainPass(base) as plain,
        ):
            return [
                {"tokens": length, **_row(server, browser, plain, length, repeats)}
                for length, repeats in lengths.items()
            ]


def _row(server: Server, browser: Browser, plain: PlainPass, length: int, repeats: int) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"http://{server.url}/#model=base&text=a+warm+model")
    marked(page, "headscope:head", LONGEST_MS)
    live = page.get_by_role("checkbox", name="live")
    if live.is_checked():  # text must not be analysed while it is typed
        live.uncheck()
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    received: list[int] = []
    session.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
    session.on("Network.responseReceived", lambda event: received.append(len(str(event["response"]["headers"]))))
    passes, painted, computed, arrived, wire, kept = [], [], [], [], [], []
    warmup = 1 if repeats > 1 else 0
    for turn in range(warmup + repeats):
        pass_ms = plain.milliseconds(length)
        stored = _bytes(server.home)
        page.get_by_role("textbox", name="Text", exact=True).fill(text_of(length))
        page.evaluate("performance.clearMarks(), performance.clearResourceTimings()")
        received.clear()
        page.get_by_role("button", name="Analyse").click()
        marked(page, "headscope:grid", LONGEST_MS)
        before = sum(received)
        marked(page, "headscope:head", LONGEST_MS)
        _quiet(page, received)
        if turn >= warmup:
            at = times(page)
            newest = server.get("/analyses?limit=1").json()["items"][0]["id"]
            document = server.get(f"/analyses/{newest}").json()
            assert len(document["tokens"]) == length, page.get_by_role("alert").all_inner_texts()
            passes.append(pass_ms)
            computed.append(document["timing_ms"]["total"])
            painted.append(at["headscope:grid"] - at["headscope:submit"])
            arrived.append(float(page.evaluate(ARRIVED)))
            wire.append(before)
            kept.append((_bytes(server.home) - stored) / 1e6)
    page.close()
    allowed = [PASSES * plain_ms + OVERHEAD_MS for plain_ms in passes]
    overhead = [total - own for total, own in zip(painted, computed, strict=True)]
    return {
        "plain_ms": Spread.of(passes).text(),
        "grid_painted_ms": Spread.of(painted).text(),
        "computed_passes": ratios(computed, passes).text(digits=2),
        "grid_painted_ms_of_budget": ratios(painted, allowed).text(digits=2),
        **judged("kept_mb", kept, KEPT_MB.get(length, KEPT_MB[512])),
        **judged("overhead_ms", overhead, OVERHEAD_MS),
        **judged("arrived_ms", arrived, ARRIVED_MS),
        **judged("kb_before_first_paint", [size / 1000 for size in wire], FIRST_KB),
    }


def _bytes(home: Path) -> int:
    return sum(file.stat().st_size for file in home.rglob("*") if file.is_file())


def _quiet(page: Page, received: list[int]) -> None:
    """Wait until the page has prefetched everything, so that it is not counted with the next text."""
    before = -1
    while before != len(received):
        before = len(received)
        page.wait_for_timeout(QUIET_MS)
