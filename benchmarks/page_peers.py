"""The same attention drawn by Headscope, BertViz 1.4.1 and CircuitsVis 1.43.3, in turn in the same Chromium: milliseconds from navigation to the last painted head.

144 heads for BertViz' model view and for Headscope's grid, on the page that Headscope exports; one layer of 12 heads for BertViz' head view and for CircuitsVis, which
draw one layer at a time. Generating the HTML is not counted. Scripts that peers load from a CDN come from npm. Ratios are of the same repeat. A page that has taken a
minute in total is not drawn again; `-` was not drawn within a minute, or ran out of memory. No repeat begins after eight minutes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

import psutil
import torch
from playwright.sync_api import Browser, Error
from tests.support.chromium import chromium
from tests.support.models import tiny_model
from tests.support.server import Server, eventually

import headscope

from .browsing import renderer, served
from .common import Spread, ratios
from .page import text_of

LENGTHS = (16, 64, 128)
REPEATS = 5
# Peers need packages from PyPI and npm, and take minutes.
SMALLEST: dict[str, Any] = {"lengths": (8,), "repeats": 1, "width": 48, "peers": False}
# Time limits: of one page, of all repeats of a page, and (in s) of everything; no repeat begins after that.
PATIENCE_MS = 60_000
ENOUGH_MS = 60_000
TOTAL_S = 480
MB = 1e6
# Name -> HTML, the script that waits until it is drawn, and the script's arguments.
Pages = dict[str, tuple[str, str, list[Any]]]
SCRIPTS = {
    "d3.min": "d3@5.7.0/dist/d3.min.js",
    "jquery.min": "jquery@2.1.4/dist/jquery.min.js",
    "require.min": "requirejs@2.3.6/require.js",
}
# Complete once the expected number of elements exists, and painted in the next frame.
DRAWN = """([selector, wanted, patience]) => new Promise((resolve, reject) => {
  const look = () => {
    if (performance.now() > patience) return reject(new Error('too slow'))
    if (document.querySelectorAll(selector).length < wanted) return setTimeout(look, 20)
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())))
  }
  look()
})"""
PAINTED = """([, , patience]) => new Promise((resolve, reject) => {
  const look = () => {
    const [mark] = performance.getEntriesByName('headscope:grid')
    if (mark) return resolve(mark.startTime)
    performance.now() > patience ? reject(new Error('too slow')) : requestAnimationFrame(look)
  }
  look()
})"""


def measure(
    lengths: tuple[int, ...] = LENGTHS, repeats: int = REPEATS, width: int = 768, peers: bool = True
) -> list[dict[str, Any]]:
    """Return one row per length; without `peers`, only of Headscope."""
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        tiny_model(folder / "models" / "base", "bert", layers=12, heads=12, width=width, positions=512)
        (folder / "www").mkdir()
        if peers:
            _scripts(folder / "www")
        with Server(folder / "home", folder / "models") as server, served(folder / "www") as address:
            end = time.monotonic() + TOTAL_S
            rows = []
            for length in lengths:
                pages = _pages(server, folder, address, text_of(length), length, peers)
                rows.append({"tokens": length, **_row(browser, folder, address, pages, repeats, end)})
            return rows


def _pages(server: Server, folder: Path, address: str, text: str, length: int, peers: bool) -> Pages:
    pages: Pages = {"headscope": (_exported(server, text), PAINTED, ["", 0, PATIENCE_MS])}
    if peers:
        pages |= {name: (html, DRAWN, how) for name, (html, how) in _peers(folder, address, text, length).items()}
    return pages


def _row(browser: Browser, folder: Path, address: str, pages: Pages, repeats: int, end: float) -> dict[str, Any]:
    for name, (html, _, _) in pages.items():
        (folder / "www" / f"{name}.html").write_text(html, encoding="utf-8")
    taken: dict[str, list[float]] = {name: [] for name in pages}
    held: dict[str, tuple[int, int]] = {}
    for turn in range(repeats):
        for name, (_, script, how) in pages.items():
            failed, late = len(taken[name]) < turn, time.monotonic() > end
            if not failed and not late and sum(taken[name]) < ENOUGH_MS:
                _draw(browser, f"{address}/{name}.html", script, how, taken[name], held, name)
    row: dict[str, Any] = {}
    for name, (html, _, _) in pages.items():
        row |= {
            f"{name}_ms": Spread.of(taken[name]).text() if taken[name] else "-",
            f"{name}_mb": f"{len(html) / MB:.1f}",
        }
        if name in held:
            row |= {f"{name}_nodes": held[name][0], f"{name}_renderer_mb": f"{held[name][1] / MB:.0f}"}
        if name != "headscope" and 0 < len(taken[name]) <= len(taken["headscope"]):
            row[f"{name}_ratio"] = ratios(taken[name], taken["headscope"][: len(taken[name])]).text(digits=1)
    return row


def _draw(
    browser: Browser,
    address: str,
    script: str,
    how: list[Any],
    taken: list[float],
    held: dict[str, tuple[int, int]],
    name: str,
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    # A busy page does not notice its own timeout.
    end = Timer(PATIENCE_MS / 1e3, _end_renderers)
    end.start()
    try:
        page.goto(address, timeout=PATIENCE_MS)
        taken.append(float(page.evaluate(script, how)))
        held[name] = renderer(page)
    except Error as error:  # too slow, or out of memory: not repeated
        if not re.search("too slow|Timeout|crashed|closed", error.message):
            raise
    finally:
        end.cancel()
        page.close()


def _end_renderers() -> None:
    """Kill the renderers of this process' browser, so that waiting for a page fails with a crash."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "--type=renderer" in process.cmdline():
                process.kill()


def _exported(server: Server, text: str) -> str:
    request = {"model": "base", "text": text, "lenses": ["weights"], "measures": ["entropy"]}
    done = server.post(request, headers={"Prefer": "wait=30"}).json()
    eventually(lambda: server.get(f"/analyses/{done['id']}").json()["status"] == "done", "an analysis", 300)
    return str(server.get(f"/analyses/{done['id']}/export?format=html").text)


def _peers(folder: Path, address: str, text: str, length: int) -> dict[str, tuple[str, list[Any]]]:
    from bertviz import head_view, model_view
    from circuitsvis.attention import attention_heads

    model = headscope.load(str(folder / "models" / "base"))
    encoded = model.encode(text)
    model.module.set_attn_implementation("eager")
    with torch.inference_mode():
        maps = model.module(**model.inputs(encoded), output_attentions=True).attentions
    tokens = [token.text for token in encoded.tokens]

    def bertviz(view: Callable[..., Any], **options: Any) -> str:
        html = view(maps, tokens, html_action="return", **options).data
        html = re.sub(r"https://cdnjs[^'\"]*/([^/'\"]+)", rf"{address}/\1", html)
        return f'<!doctype html><meta charset="utf-8">{html}'

    drawn = attention_heads(maps[0][0], tokens, mask_upper_tri=False).local_src
    return {
        "bertviz_model_view": (bertviz(model_view), ["svg line", 144 * length**2, PATIENCE_MS]),
        "bertviz_head_view": (bertviz(head_view, include_layers=[0]), ["svg line", 12 * length**2, PATIENCE_MS]),
        "circuitsvis_layer": (f'<!doctype html><meta charset="utf-8">{drawn}', ["canvas", 12, PATIENCE_MS]),
    }


def _scripts(folder: Path) -> None:
    """Copy the libraries that BertViz loads from npm into the folder."""
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
