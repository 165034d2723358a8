"""The process that renders images: it times out, and its browser ends with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest

from headscope.errors import FigureNotDrawn, TimedOut
from headscope.figures.images import render
from headscope.figures.plotly_script import load_script
from tests.support.server import eventually, gone

FIGURE: dict[str, Any] = {"data": [{"type": "bar", "x": [1, 2], "y": [3, 4]}], "layout": {}}


def hanging(folder: Path) -> Path:
    """A browser that starts and hangs; `started` returns its process."""
    browser = folder / "chromium"
    browser.write_text(f"#!/bin/sh\necho $$ > {folder}/pid\nexec sleep 600\n")
    browser.chmod(0o755)
    return browser


def started(folder: Path) -> psutil.Process | None:
    """Return the process of that browser, once it runs."""
    written = (folder / "pid").read_text().strip() if (folder / "pid").exists() else ""
    return psutil.Process(int(written)) if written else None


def test_a_picture_takes_its_time_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that hangs is killed, with the process around it."""
    monkeypatch.setenv("BROWSER_PATH", str(hanging(tmp_path)))

    async def draw() -> psutil.Process:
        waiting = asyncio.create_task(render(FIGURE, "svg", 300, 200))
        browser = await asyncio.to_thread(eventually, lambda: started(tmp_path), "a browser that started")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert browser
        return browser

    browser = asyncio.run(draw())
    eventually(lambda: gone(browser), "the browser's end")
    with pytest.raises(TimedOut):
        asyncio.run(render(FIGURE, "svg", 300, 200, seconds=0.05))


def test_a_browser_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser's output is only logged."""
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(broken))
    with pytest.raises(FigureNotDrawn, match="could not render"):
        asyncio.run(render(FIGURE, "pdf", 300, 200))


def test_script_leaves_no_style_to_write() -> None:
    """An element for each that plotly.js would fill, before plotly.js itself."""
    body = load_script().body.decode()
    assert body.index("no-inline-styles") < body.index("plotly.js v")
    assert "plotly.js-style-global" in body[:200]
