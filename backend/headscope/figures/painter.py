"""The process that draws one picture: a figure and options as JSON on standard input, the file on standard output.

Ends with NO_BROWSER where there is no browser. Nothing is loaded from a network: plotly.js comes from the Python package, MathJax is left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from .rendering import NO_BROWSER

# How often (s) it is looked at whether a browser that is being started still lives.
LOOK = 0.2


async def paint(figure: dict[str, Any], options: dict[str, Any]) -> bytes:
    """The bytes of the file. Raises ChromeNotFoundError without a browser, ChildProcessError for one that ends at once."""
    import kaleido

    # Without Chromium's sandbox, which root and many containers can't have: the page holds our own numbers only.
    browser = kaleido.Kaleido(mathjax=False, timeout=None)
    opening = asyncio.create_task(browser.open())
    while not (await asyncio.wait([opening], timeout=LOOK))[0]:
        begun = getattr(browser, "subprocess", None)
        if begun is not None and begun.poll() is not None:
            raise ChildProcessError(f"the browser ended with {begun.returncode}")
    await opening
    drawn: bytes = await browser.calc_fig(figure, opts=options)
    await browser.close()
    return drawn


async def answer(asked: dict[str, Any]) -> int:
    """Write the file to standard output; the exit status."""
    from choreographer.errors import ChromeNotFoundError

    try:
        drawn = await paint(asked["figure"], asked["options"])
    except ChromeNotFoundError:
        return NO_BROWSER
    except ChildProcessError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(1)  # threads that listen to the browser would wait for ever
    sys.stdout.buffer.write(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(answer(json.load(sys.stdin.buffer))))
