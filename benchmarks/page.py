"""From pressing Analyse to the painted grid, in real Chromium, and what goes over the wire; BertViz's model view beside it.

Headscope runs MiniLM (6 layers x 12 heads) warm, every repeat with a text it has not seen. BertViz gets the attentions of the same model and text; its scripts,
which it loads from a content network, are served from npm packages. Its time is from navigation to the last head drawn; making its HTML is not counted.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from playwright.sync_api import Browser, Page, sync_playwright
from tests.server import Server

import headscope

from .common import Spread

REPEATS = 5
LENGTHS = (16, 64, 128, 512)
BERTVIZ_LENGTHS = (16, 64, 128)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCRIPTS = {
    "d3.min": "d3@5.7.0/dist/d3.min.js",
    "jquery.min": "jquery@2.1.4/dist/jquery.min.js",
    "require.min": "requirejs@2.3.6/require.js",
}
WORDS = "the river bank rose while old men told their sons about boats and rain that came down from high hills every year".split()
_fresh = count()


def text_of(tokens: int) -> str:
    """A new text each time, of one token per word and two special tokens."""
    start = next(_fresh)
    return " ".join(WORDS[(start * 7 + i * (1 + start % 5)) % len(WORDS)] for i in range(tokens - 2))


def measure() -> list[dict[str, Any]]:
    """One row per length."""
    with tempfile.TemporaryDirectory() as home, Server(Path(home)) as server, browser() as chromium:
        rows = {length: _headscope(server, chromium, length) for length in LENGTHS}
        peers = _bertviz(chromium)
    return [{"tokens": length, **row, **peers.get(length, {})} for length, row in rows.items()]


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium of the system."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield chromium
        chromium.close()


def _headscope(server: Server, chromium: Browser, length: int) -> dict[str, Any]:
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"http://{server.url}/")
    _marked(page, "headscope:graph")
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    received: list[int] = []
    session.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
    session.on("Network.responseReceived", lambda event: received.append(len(str(event["response"]["headers"]))))
    grid, head, wire = [], [], []
    for turn in range(REPEATS + 1):
        page.get_by_role("textbox", name="Text", exact=True).fill(text_of(length))
        page.evaluate("performance.clearMarks()")
        received.clear()
        page.get_by_role("button", name="Analyse").click()
        _marked(page, "headscope:grid")
        at_grid = sum(received)
        _marked(page, "headscope:graph")
        _quiet(page, received)
        if turn:
            times = page.evaluate(
                "Object.fromEntries(performance.getEntriesByType('mark').map((m) => [m.name, m.startTime]))"
            )
            grid.append(times["headscope:grid"] - times["headscope:submit"])
            head.append(times["headscope:graph"] - times["headscope:submit"])
            wire.append(at_grid)
    page.close()
    return {
        "grid_painted_ms": Spread.of(grid).text(),
        "head_and_graph_painted_ms": Spread.of(head).text(),
        "kb_before_first_paint": Spread.of(wire).text(1e-3),
    }


def _quiet(page: Page, received: list[int]) -> None:
    """Wait until what the page fetches ahead has come, so that it is not counted with the next text."""
    before = -1
    while before != len(received):
        before = len(received)
        page.wait_for_timeout(700)


def _marked(page: Page, name: str) -> None:
    page.wait_for_function("(name) => performance.getEntriesByName(name).length > 0", arg=name, timeout=60_000)


def _bertviz(chromium: Browser) -> dict[int, dict[str, Any]]:
    from bertviz import model_view

    model = headscope.load("minilm")
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as address:
        _scripts(Path(folder))
        rows = {}
        for length in BERTVIZ_LENGTHS:
            encoded = model.encode(text_of(length))
            model.module.set_attn_implementation("eager")
            with torch.inference_mode():
                attentions = model.module(**model.inputs(encoded), output_attentions=True).attentions
            html = model_view(attentions, [token.text for token in encoded.tokens], html_action="return").data
            html = re.sub(r"https://cdnjs[^'\"]*/([^/'\"]+)", rf"{address}/\1", html)
            file = Path(folder) / "bertviz.html"
            file.write_text(f'<!doctype html><meta charset="utf-8">{html}', encoding="utf-8")
            seconds = [
                _bertviz_paint(chromium, f"{address}/{file.name}") for _ in range(REPEATS if length < 128 else 2)
            ]
            rows[length] = {
                "bertviz_painted_ms": Spread.of(seconds).text(1e3),
                "bertviz_kb": f"{file.stat().st_size / 1e3:.0f}",
            }
        return rows


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The folder at an address of this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def _bertviz_paint(chromium: Browser, address: str) -> float:
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address, timeout=300_000)
    # The view is complete once no more lines are added, and painted in the frame after that.
    done = """() => new Promise((resolve) => {
      let last = -1;
      const look = () => {
        const lines = document.querySelectorAll("svg line").length;
        if (lines > 0 && lines === last) requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() / 1000)));
        else { last = lines; setTimeout(look, 50); }
      };
      look();
    })"""
    seconds = float(page.evaluate(done))
    page.close()
    return seconds


def _scripts(folder: Path) -> None:
    """Put the libraries that BertViz loads into the folder; they come from npm."""
    node = Path(__file__).resolve().parents[1] / ".venv" / "bin"
    packages = [spec.split("/")[0] for spec in SCRIPTS.values()]
    subprocess.run(
        [str(node / "npm"), "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages],
        check=True,
        capture_output=True,
    )
    for name, spec in SCRIPTS.items():
        package, _, path = spec.partition("/")
        shutil.copy(folder / "node_modules" / package.split("@")[0] / path, folder / name)
        shutil.copy(folder / name, folder / f"{name}.js")
