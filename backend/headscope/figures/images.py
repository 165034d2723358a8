"""Figures as SVG, PNG and PDF, drawn by this machine's Chromium in a separate process with a timeout."""

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

ImageFormat = Literal["svg", "png", "pdf"]
MEDIA: dict[ImageFormat, str] = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
# Device pixels per px in a PNG: a figure of 640 px prints with 300 dpi at a width of 16 cm.
SCALE = 3
# Timeout (s) for one image. A cold start of Chromium on a busy machine takes about ten.
SECONDS = 60.0
# Exit status of image_process.py without a browser.
NO_BROWSER = 3


async def render(
    figure: dict[str, Any], format_: ImageFormat, width: int, height: int, seconds: float = SECONDS
) -> bytes:
    """Return the figure as a file. Width and height are in px (1/96 inch). Each call starts a browser, which takes about 300 MB. Raises FigureNotDrawn or TimedOut."""
    options = {"format": format_, "width": width, "height": height, "scale": SCALE if format_ == "png" else 1}
    task = json.dumps({"figure": figure, "options": options}).encode()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headscope.figures.image_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        image, stderr = await asyncio.wait_for(process.communicate(task), seconds)
    except TimeoutError:
        raise TimedOut("Rendering the image timed out. Try again, or request csv.") from None
    finally:
        if process.returncode is None:
            _kill(process.pid)
            await process.wait()
    if process.returncode == 0:
        return image
    if process.returncode == NO_BROWSER:
        raise FigureNotDrawn(
            "The server has no browser to render images. Install Chromium or Chrome on its machine (apt-get install chromium), or request json or csv."
        )
    logger.error("figure could not be rendered: %s", stderr.decode(errors="replace")[-2000:])
    raise FigureNotDrawn(
        "The browser could not render the figure; the server's log has the reason. Request json or csv."
    )


def _kill(pid: int) -> None:
    """Kill the process and its browser, which has its own session."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (*parent.children(recursive=True), parent):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
