"""The pictures of the page, taken from the real server by the Chromium of this machine."""

from __future__ import annotations

import io
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

from PIL import Image

from .samples import LONG, MIDDLE, SHORT, TAGGED

# Text and choices of the page in the README, as in its address.
SHOWN = {"text": MIDDLE, "head": "3.1", "view": "both", "compare": "side", "other": "effective"}
# What heads do to a prediction, with a model that is installed for it.
PREDICTED = {
    "model": "smollm2",
    "text": "When Mary and John went to the store, John gave a drink to",
    "target": '[" Mary", " John"]',
    "colour": "effect.contribution",
    "head": "23.3",
    "layers": "22-29",
    "off": "0.0 23.3 29.1",
    "view": "both",
}
# Enough colours for two maps and their letters; the file is a third of the size.
COLOURS = 256

# The study: its request, and the view that is open.
STUDIED = ("entropy", "pattern-grid")
DATA = "\n".join([SHORT, TAGGED, *re.split(r"(?<=[.:]) ", LONG)])


@contextmanager
def server() -> Iterator[str]:
    """Start a real server with its own data directory, and yield its address."""
    with tempfile.TemporaryDirectory(prefix="headscope-pictures-") as home:
        environment = {**os.environ, "HEADSCOPE_HOME": home, "HEADSCOPE_HUB": "off"}
        headscope = [sys.executable, "-c", "from headscope.cli.main import main; main()"]
        subprocess.run([*headscope, "models", "install", PREDICTED["model"]], env=environment, check=True)
        command = [*headscope, "serve", "--port", "0", "--no-open"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                found = re.search(r"http://[\d.:]+", process.stdout.readline())
                if found is None:
                    sys.exit("The server did not start.")
                yield found[0]
            finally:
                process.terminate()


def study(address: str) -> str:
    """Run the study, and return its id."""
    import httpx

    asked = {"dataset": {"name": "town.txt", "data": DATA}, "model": "minilm", "figures": STUDIED}
    url = f"{address}/api/v1/studies"
    answer = httpx.post(url, json=asked, headers={"Prefer": "wait=120"}, timeout=180, trust_env=False)
    return str(answer.raise_for_status().json()["id"])


def take(target: Path) -> None:
    """Draw the page, and a study on it, in light and dark; and what heads do to a prediction."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("There is no Chromium on this machine.")
    with server() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        found = study(address)
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": 1440, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
            )
            page = context.new_page()
            page.goto(f"{address}/#{_fragment(SHOWN)}")
            _wait_for_marks(page, "grid", "head", "graph")
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(500)
            _photograph(page, target / f"page-{scheme}.png")
            page.set_viewport_size({"width": 1440, "height": 660})
            page.goto(f"{address}/?studies#study={found}&figures={','.join(STUDIED)}")
            page.locator(".js-plotly-plot:has(.xtick)").nth(len(STUDIED) - 1).wait_for(timeout=120_000)
            page.wait_for_timeout(500)
            _photograph(page, target / f"study-{scheme}.png")
            context.close()
        page = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        page.goto(f"{address}/#{_fragment(PREDICTED)}")
        page.get_by_role("group", name="Predictions without these heads").wait_for(timeout=120_000)
        _wait_for_marks(page, "grid", "head")
        page.wait_for_timeout(500)
        _photograph(page, target / "effects.png")
        browser.close()


def _fragment(fields: dict[str, str]) -> str:
    """Return the choices of an address."""
    return "&".join(f"{key}={quote(value)}" for key, value in fields.items())


def _photograph(page: Any, file: Path) -> None:
    """Write the window as a PNG of few colours."""
    whole = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    # This way of choosing the colours keeps rare ones, such as those of a scale.
    few = whole.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    few.save(file, optimize=True)


def _wait_for_marks(page: Any, *names: str, seconds: float = 120) -> None:
    """Wait until the page has painted these. Its content security policy forbids waiting inside the page."""
    until = time.monotonic() + seconds
    for name in names:
        while not page.evaluate(f"performance.getEntriesByName('headscope:{name}').length"):
            if time.monotonic() > until:
                sys.exit(f"The page did not paint its {name}.")
            page.wait_for_timeout(100)
