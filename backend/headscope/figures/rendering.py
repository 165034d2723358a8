"""Figures as SVG, PNG and PDF: drawn by the Chromium of this machine, in a process of its own that ends with the picture or with its time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from typing import Any, Literal

import psutil

from ..errors import FigureNotDrawn, TimedOut

logger = logging.getLogger("headscope.figures")

Image = Literal["svg", "png", "pdf"]
MEDIA: dict[Image, str] = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
# Pixels per pixel of a PNG: 640 px wide prints at 300 dpi over 16 cm.
SCALE = 3
# Longest time (s) for one picture. A cold Chromium on a busy machine takes about ten.
SECONDS = 60.0
# What painter.py ends with where there is no browser.
NO_BROWSER = 3


class Renderer:
    """Draws one picture at a time: a browser takes some 300 MB. Belongs to the event loop that asks first."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._turn = asyncio.Semaphore(1)

    async def render(self, figure: dict[str, Any], image: Image, width: int, height: int) -> bytes:
        """The figure as a file; width and height in px of 1/96 inch. Raises FigureNotDrawn or TimedOut."""
        async with self._turn:
            return await _paint(figure, image, width, height, self._seconds)


async def _paint(figure: dict[str, Any], image: Image, width: int, height: int, seconds: float) -> bytes:
    wanted = {"format": image, "width": width, "height": height, "scale": SCALE if image == "png" else 1}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headscope.figures.painter"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        given = json.dumps({"figure": figure, "options": wanted}).encode()
        drawn, complaint = await asyncio.wait_for(process.communicate(given), seconds)
    except TimeoutError:
        raise TimedOut("The figure took too long to draw. Try again, or ask for csv.") from None
    finally:
        if process.returncode is None:
            _kill(process.pid)
            await process.wait()
    if process.returncode == 0:
        return drawn
    if process.returncode == NO_BROWSER:
        raise FigureNotDrawn(
            "The server has no browser to draw with. Install Chromium or Chrome on its machine (apt-get install chromium), or ask for json or csv."
        )
    logger.error("a figure could not be drawn: %s", complaint.decode(errors="replace")[-2000:])
    raise FigureNotDrawn("The browser could not draw the figure; the server's log says why. Ask for json or csv.")


def _kill(pid: int) -> None:
    """Kill the painter and its browser, which has a session of its own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        painter = psutil.Process(pid)
        for process in (*painter.children(recursive=True), painter):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
