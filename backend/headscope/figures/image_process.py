"""The process that renders one image: a figure and options as JSON on standard input, the file on standard output.

Exits with NO_BROWSER if there is no browser. Loads nothing from the network: plotly.js comes from the Python package, and MathJax is left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import kaleido
from choreographer.errors import ChromeNotFoundError

from .images import NO_BROWSER

# Interval (s) of the check whether a starting browser has exited.
POLL = 0.2


async def render(figure: dict[str, Any], options: dict[str, Any]) -> bytes:
    """Return the file. Raises ChromeNotFoundError without a browser, ChildProcessError if the browser exits at start."""
    # Chromium's sandbox is off, because root and many containers cannot use it; the page holds only our own numbers.
    browser = kaleido.Kaleido(mathjax=False, timeout=None)
    opening = asyncio.create_task(browser.open())
    while not (await asyncio.wait([opening], timeout=POLL))[0]:
        started = getattr(browser, "subprocess", None)
        if started is not None and started.poll() is not None:
            raise ChildProcessError(f"the browser exited with {started.returncode}")
    await opening
    image: bytes = await browser.calc_fig(figure, opts=options)
    await browser.close()
    return image


async def run(task: dict[str, Any]) -> int:
    """Write the file to standard output and return the exit status."""
    try:
        image = await render(task["figure"], task["options"])
    except ChromeNotFoundError:
        return NO_BROWSER
    except ChildProcessError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(1)  # threads that listen to the browser would never end
    sys.stdout.buffer.write(image)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run(json.load(sys.stdin.buffer))))
