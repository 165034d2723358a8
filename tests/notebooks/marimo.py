"""The widget in marimo, which is dark here: it is one, and from Python to the page and back."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import expect

from tests.support.chromium import chromium
from tests.support.server import eventually

from .frames import (
    LOAD,
    PATIENCE_S,
    SHOW,
    check_from_python,
    choose_in_page,
    environment,
    make_model,
    painted,
    picture,
)

# A change of the head in the page chooses the rest from Python; changes of the rest are written down.
FOLLOW = """def choose(change):
    view.lens, view.pins, view.range = "effective", "q500 k7", "row"
def tell(_):
    open("told", "w").write(";".join((view.head, view.lens, view.pins, view.range)))
view.observe(choose, "head")
view.observe(tell, ["lens", "pins", "range"])"""
CELLS = (LOAD, SHOW, FOLLOW)
CELL = "@app.cell\ndef _({given}):\n    {body}\n    return ({made},)\n"
NAMES = (("", "a, headscope"), ("a, headscope", "view"), ("view", ""))


def check(folder: Path) -> None:
    """Raise AssertionError if something is not as it should be."""
    make_model(folder)
    made = [
        CELL.format(given=given, body=code.replace("\n", "\n    "), made=names).replace("(,)", "()")
        for code, (given, names) in zip(CELLS, NAMES, strict=True)
    ]
    (folder / "a.py").write_text("\n\n".join(["import marimo\n\napp = marimo.App()", *made]))
    (folder / "config" / "marimo").mkdir(parents=True)
    (folder / "config" / "marimo" / "marimo.toml").write_text(
        '[runtime]\nauto_instantiate = true\n[display]\ntheme = "dark"\n'
    )
    with _marimo(folder) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.goto(address)
        frame = painted(page)
        expect(frame.get_by_role("img", name="Heat map of head 11.3")).to_be_visible(timeout=PATIENCE_S * 1000)
        expect(frame.locator(":root")).to_have_attribute("data-theme", "dark")
        frame.get_by_role("grid", name="Heads").press("ArrowLeft")
        check_from_python(frame)
        page.screenshot(path=picture("marimo-from-python"))
        choose_in_page(frame)
        page.screenshot(path=picture("marimo-from-the-page"))
        told = folder / "told"
        eventually(lambda: told.read_text() == "11.2;weights;q0 k0;all", "choices reach Python", PATIENCE_S)


@contextmanager
def _marimo(folder: Path) -> Iterator[str]:
    """Start marimo with a notebook, and yield its address."""
    command = [sys.executable, "-m", "marimo", "edit", "--headless", "--no-token", "--skip-update-check", "a.py"]
    log = folder / "log"
    with (
        log.open("w") as file,
        subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=file, stderr=file) as process,
    ):
        try:
            found = eventually(lambda: re.search(r"http://localhost:\d+", log.read_text()), "marimo", PATIENCE_S)
            yield found[0]
        finally:
            process.terminate()
