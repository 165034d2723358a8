"""The widget in JupyterLab: from Python to the page and back, the time to the first picture, and what is saved and exported; the notebook of BertViz beside it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter
from playwright.sync_api import Frame, Page, expect

from tests.support.chromium import chromium
from tests.support.server import eventually

from .executed import execute
from .frames import (
    LOAD,
    PATIENCE_S,
    SHOW,
    check_from_python,
    choose_in_page,
    environment,
    make_model,
    painted,
    painted_at,
    picture,
)

MOST_BYTES = 1_000_000
SHOWN = f"import time\n{SHOW.partition(chr(10))[0]}\nran = time.time()\nview"
# Without it, JupyterLab asks for one.
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
# Prints in one line what the traits are, and changes one.
PROBE = "print('head', view.head, 'ran', ran)\nview.head = '3.7'"
CHOOSE = "view.lens, view.pins, view.range = 'effective', 'q500 k7', 'row'"
TELL = "print(view.lens, view.pins, view.range, sep=';')"
# As many heads in BertViz, with a quarter of the tokens.
BERTVIZ = """import torch
from bertviz import model_view
model_view([torch.rand(1, 12, 128, 128).softmax(-1) for _ in range(12)], [f"w{n}" for n in range(128)])"""
READY = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
RUN = "void window.jupyterapp.commands.execute('notebook:run-cell-and-select-next')"
SAVE = "window.jupyterapp.commands.execute('docmanager:save')"


def check(folder: Path) -> None:
    """Raise AssertionError if something is not as it should be; print what was measured."""
    make_model(folder)
    path = _notebook(folder / "a.ipynb", LOAD, SHOWN, PROBE, CHOOSE, TELL)
    with _lab(folder) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.set_default_timeout(PATIENCE_S * 1000)
        page.goto(f"{address}lab/tree/a.ipynb")
        _run(page, 1)
        page.evaluate(RUN)
        frame = painted(page)
        frame.get_by_role("grid", name="Heads").press("ArrowLeft")
        expect(frame.get_by_role("img", name="Heat map of head 11.2")).to_be_visible()
        printed = _run(page, 3)
        expect(frame.get_by_role("img", name="Heat map of head 3.7")).to_be_visible()
        _check_traits(page, frame)
        page.evaluate(SAVE)
        eventually(lambda: "11.2" in path.read_text("utf-8"), "the notebook is saved", PATIENCE_S)
        found = re.search(r"head (\S+) ran (\S+)", printed)
        assert found, printed
        assert found[1] == "11.2"
        size = path.stat().st_size
        assert size < MOST_BYTES
        print(
            f"jupyterlab: {painted_at(frame) - float(found[2]):.2f} s from the end of the cell to all heads, {size:,} bytes"
        )
    exported, _ = HTMLExporter().from_filename(str(path))
    assert "Small maps of all heads" in exported
    peer = _notebook(folder / "peer.ipynb", BERTVIZ)
    nbformat.write(execute(peer, folder), peer)
    print(f"jupyterlab: BertViz's model view of as many heads, 128 tokens: {peer.stat().st_size:,} bytes")


def _check_traits(page: Page, frame: Frame) -> None:
    """Lens, pins and range follow Python, and Python follows them."""
    _run(page, 4)
    check_from_python(frame)
    page.screenshot(path=picture("jupyterlab-from-python"))
    choose_in_page(frame)
    page.screenshot(path=picture("jupyterlab-from-the-page"))
    assert _run(page, 5) == "weights;q0 k0;all"


def _notebook(path: Path, *cells: str) -> Path:
    """Write a notebook with these cells."""
    made = [nbformat.v4.new_code_cell(code) for code in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=KERNEL), path)
    return path


def _run(page: Page, number: int) -> str:
    """Run the selected cell, wait for its number, and return what was printed last."""
    page.wait_for_function(READY)
    page.evaluate(RUN)
    expect(page.locator(".jp-InputPrompt", has_text=f"[{number}]:")).to_be_attached(timeout=PATIENCE_S * 1000)
    printed = page.locator(".jp-OutputArea-output pre")
    return printed.last.inner_text().strip() if printed.count() else ""


@contextmanager
def _lab(folder: Path) -> Iterator[str]:
    """Start JupyterLab in a folder, and yield its address."""
    options = [
        "--no-browser",
        "--allow-root",
        "--IdentityProvider.token=",
        "--port=0",
        f"--ServerApp.root_dir={folder}",
    ]
    command = [sys.executable, "-m", "jupyterlab", *options, "--LabApp.expose_app_in_browser=True"]
    log = folder / "log"
    with log.open("w") as file, subprocess.Popen(command, env=environment(folder), stdout=file, stderr=file) as process:
        try:
            found = eventually(lambda: re.search(r"http://localhost:\d+/", log.read_text()), "JupyterLab", PATIENCE_S)
            yield found[0]
        finally:
            process.terminate()
