"""Every gallery entry, over fixed data, as a screen reader meets it: no pixels, so nothing flickers. And nothing that axe-core complains of.

Snapshots are the text files in snapshots/. After an intended change, rewrite them and read the diff:

    HEADSCOPE_TEST_RENEW=1 .venv/bin/python -m pytest tests/browser/test_gallery.py && git diff tests/browser/snapshots
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from headscope.figures.plotly_script import load_script
from tests.browser.axe import FRONTEND, check
from tests.browser.visit import Visit, comes_to, picture
from tests.support.extent import extent, mostly_long

SNAPSHOTS = Path(__file__).parent / "snapshots"
ENTRIES = re.findall(r"\{\s+name: '([\w-]+)',\s+tokens", (FRONTEND / "gallery" / "entries.ts").read_text())
# Entries of the gallery, and those that look different on a phone.
NARROW = {
    "both-34",
    "side-64",
    "running",
    "sign-in",
    "image-50",
    "effects-12",
    "map-small-34",
    "scatter-34",
    "statistics-34",
    "studies-new",
    "studies-heads",
}

# Entries with the elements of another one and other numbers in them: axe-core would look at the same twice. The last two draw figures, as other tests do.
OTHER_NUMBERS = {
    "both-12",
    "both-128",
    "both-512",
    "graph-128",
    "effective-64",
    "identical-12",
    "colour-null-share",
    "colour-own-scale",
    "scale-linear",
    "scale-log",
    "layers-34",
    "gaps-34",
    "mechanism-34",
    "arcs-34",
    "by-value-34",
    "find-ranked-34",
    "compared-texts-12",
    "compared-unlike-12",
    "token-ids-12",
    "studies-paired",
    "studies-heads-paired",
    "statistics-34",
    "studies-figures",
}


# In `make test`, one of each kind of view.
SHORT = {
    "both-34",
    "map-sentences",
    "colour-entropy",
    "image-50",
    "find-ranked-34",
    "find-error-34",
    "map-small-34",
    "map-two-heads-34",
    "scatter-34",
    "notes-34",
    "sheet-of-sessions",
    "effects-12",
    "head-tests-12",
    "running",
    "sign-in",
    "studies-new",
    "studies-failed",
    "studies-heads",
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The gallery, built from the sources, at an address of its own."""
    folder = tmp_path_factory.mktemp("gallery")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [
        "node",
        "node_modules/vite/bin/vite.js",
        "build",
        "--mode",
        "gallery",
        "--outDir",
        str(folder),
        "--emptyOutDir",
    ]
    subprocess.run(command, cwd=FRONTEND, env={**os.environ, "PATH": path}, check=True, capture_output=True)
    (folder / "assets" / "plotly.js").write_bytes(load_script().body)  # which a server gives
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def settled(visit: Visit, entry: str) -> None:
    """Everything that will come has come."""
    if entry == "running":
        visit.page.get_by_text("Escape cancels.").wait_for()
        return
    if entry == "sign-in":
        visit.page.get_by_label("Access token").wait_for()
        return
    if entry.startswith("studies"):
        studies_settled(visit, entry)
        return
    if entry.startswith("sheet"):
        visit.page.get_by_role("dialog").wait_for()
        visit.painted("graph")
        return
    if entry.startswith("compared"):
        visit.page.get_by_role("heading", name="Compared").wait_for()
        expect(visit.page.get_by_text("Comparing every")).to_be_hidden()
    if entry == "compared-mechanisms-34":
        visit.page.get_by_text("Cosine of the two maps").wait_for()
    if entry.startswith("effects"):
        visit.page.get_by_role("group", name="Predictions without these heads").wait_for()
        visit.page.get_by_role("heading", name="Effect on the prediction").wait_for()
    if entry.startswith("head-tests"):
        visit.page.get_by_text("Not among the three best heads").wait_for()
    if entry.startswith("statistics"):
        expect(visit.page.locator(".js-plotly-plot:has(.xtick)")).to_have_count(2)
    if entry.startswith("scatter"):
        visit.painted("scatter")
    visit.painted("grid")
    visit.painted("graph" if entry.startswith("graph") else "head")
    if not entry.startswith("map"):
        visit.page.get_by_role("img", name=re.compile("^(Connections|Image under)")).last.wait_for()
        if not entry.startswith("image"):
            visit.page.get_by_text(re.compile(r"^\d+ connections? ")).last.wait_for(state="attached")
    visit.page.get_by_text(re.compile("^Looks most at")).wait_for()


# What is last to come in the place of studies, and how many there are.
STUDIES = {
    "studies-none": ("text=Choose a data set first.", 1),
    "studies-new": ("text=200 inputs.", 1),
    "studies-running": ("role=progressbar", 1),
    "studies-failed": ("role=alert", 1),
    "studies-figures": (".js-plotly-plot:has(.xtick)", 3),
    "studies-paired": (".js-plotly-plot:has(.xtick)", 2),
    "studies-heads": ("role=list[name=Examples]", 1),
    "studies-heads-paired": ("role=list[name=Examples]", 2),
    "studies-tables": ("role=region[name='Numbers of heads']", 1),
    "studies-data": ("text=Inputs that failed: 2", 1),
}


def studies_settled(visit: Visit, entry: str) -> None:
    what, count = STUDIES[entry]
    expect(visit.page.locator(what)).to_have_count(count)
    if "heads" in entry:
        visit.painted("grid")


@pytest.fixture(scope="module")
def visit(browser: Browser, gallery: str) -> Iterator[Visit]:
    """One page for all entries, which loads the scripts once."""
    visit = Visit(browser, gallery)
    visit.page.goto(f"{gallery}/gallery/")
    yield visit
    visit.close()


@pytest.mark.parametrize("entry", mostly_long(ENTRIES, *SHORT))
def test_entry(visit: Visit, entry: str) -> None:
    """What a screen reader reads is what it was, and axe-core finds nothing: light, dark and, where that differs, narrow. In `make test` light, but for the latter."""
    visit.page.emulate_media(color_scheme="light")
    visit.page.set_viewport_size({"width": 1500, "height": 900})
    visit.page.evaluate("name => show(name)", entry)
    settled(visit, entry)
    images = visit.page.get_by_role("img", name=re.compile("^(Heat map|Connections)"))
    assert all(picture(image)[0] > 4 for image in images.all())
    seen = lambda: visit.page.locator("#app").aria_snapshot() + "\n"  # noqa: E731
    file = SNAPSHOTS / f"{entry}.yml"
    if os.environ.get("HEADSCOPE_TEST_RENEW"):
        file.write_text(seen())
    assert file.exists(), "no snapshot yet: see the head of this file"
    comes_to(seen, file.read_text())
    if extent(entry not in OTHER_NUMBERS, True):
        check(visit, narrow=entry in NARROW, fully=entry in NARROW)
    assert visit.problems == []


def test_what_is_looked_at_here_instead_is_an_entry() -> None:
    """Tests of this folder leave axe-core to entries that are in `make test`, too."""
    others = [file for file in Path(__file__).parent.glob("test_*.py") if file.name != Path(__file__).name]
    named = {name for file in others for name in re.findall(r'entry="([^"]+)"', file.read_text("utf-8"))}
    assert named
    assert named <= SHORT


def test_no_snapshot_without_an_entry() -> None:
    assert {file.stem for file in SNAPSHOTS.glob("*.yml")} == set(ENTRIES) > OTHER_NUMBERS | NARROW | SHORT
