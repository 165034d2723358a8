"""The pictures of the page, taken from the real server by the Chromium of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .samples import MIDDLE

# What the page shows in the README: text and choices, as they stand in its address.
SHOWN = {"text": MIDDLE, "head": "3.1", "compare": "side", "other": "effective"}


@contextmanager
def server() -> Iterator[str]:
    """The address of a real server with a home of its own."""
    with tempfile.TemporaryDirectory(prefix="headscope-pictures-") as home:
        environment = {**os.environ, "HEADSCOPE_HOME": home, "HEADSCOPE_HUB": "off"}
        command = [sys.executable, "-c", "from headscope.cli import main; main()", "serve", "--port", "0", "--no-open"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                found = re.search(r"http://[\d.:]+", process.stdout.readline())
                if found is None:
                    sys.exit("The server did not start.")
                yield found[0]
            finally:
                process.terminate()


def take(target: Path) -> None:
    """The page in light and dark."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("There is no Chromium on this machine.")
    fragment = "&".join(f"{key}={quote(value)}" for key, value in SHOWN.items())
    with server() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": 1440, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
            )
            page = context.new_page()
            page.goto(f"{address}/#{fragment}")
            _wait_for_marks(page, "grid", "head", "graph")
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(500)
            page.screenshot(path=target / f"page-{scheme}.png")
            context.close()
        browser.close()


def _wait_for_marks(page: Any, *names: str, seconds: float = 120) -> None:
    """Until the page has painted these. The page's content security policy forbids waiting inside it."""
    until = time.monotonic() + seconds
    for name in names:
        while not page.evaluate(f"performance.getEntriesByName('headscope:{name}').length"):
            if time.monotonic() > until:
                sys.exit(f"The page did not paint its {name}.")
            page.wait_for_timeout(100)
