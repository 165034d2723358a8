"""The viewer's frame in a notebook that Chromium has open, and what the checks of JupyterLab and marimo share."""

from __future__ import annotations

import os
import time
from pathlib import Path

from playwright.sync_api import Error, Frame, Locator, Page, expect

from tests.support.models import tiny_model

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build" / "notebooks"
PATIENCE_S = 180
# A notebook's cells: the model has 144 heads, and the text 512 tokens.
LOAD = """import headscope
a = headscope.analyze("wide", token_ids=[5 + i % 20 for i in range(512)], lenses=("weights", "effective"))"""
SHOW = """view = headscope.show(a, "11.3")
view"""


def make_model(folder: Path) -> None:
    """Save a random model with 144 heads, which the cells load."""
    tiny_model(folder / "wide", layers=12, heads=12, width=96, positions=512, spread=0.15)


def environment(folder: Path) -> dict[str, str]:
    """The environment of a notebook program that sees no settings of this machine."""
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"), "HEADSCOPE_HOME": str(folder / "home")}
    return {**os.environ, **home, "HEADSCOPE_HUB": "off"}


def painted(page: Page) -> Frame:
    """Return the viewer's frame, once all heads are painted in it."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for frame in page.frames[1:]:
            try:
                if frame.evaluate("performance.getEntriesByName('headscope:grid').length"):
                    return frame
            except Error:  # it is being replaced
                continue
        page.wait_for_timeout(50)
    raise AssertionError("The viewer did not appear.")


def painted_at(frame: Frame) -> float:
    """Return when all heads were painted, in seconds of the clock."""
    since = "performance.timeOrigin + performance.getEntriesByName('headscope:grid')[0].startTime"
    return float(frame.evaluate(since)) / 1000


def check_from_python(frame: Frame) -> None:
    """The viewer shows the lens, pins and range that Python has chosen: effective, q500 k7, row."""
    lens, span = _choices(frame)
    expect(lens).to_have_value("effective")
    expect(span).to_have_value("row")
    expect(frame.locator(".readout")).to_contain_text("₅₀₀ → ")


def choose_in_page(frame: Frame) -> None:
    """Choose the lens weights, the range of all heads, and the first cell; nothing is refused."""
    lens, span = _choices(frame)
    lens.select_option("weights")
    span.select_option("all")
    cells = frame.get_by_role("application").first
    for key in ("Home", "Enter"):
        cells.press(key)
    expect(frame.get_by_role("alert")).to_have_count(0)


def _choices(frame: Frame) -> tuple[Locator, Locator]:
    return frame.get_by_role("combobox", name="Lens"), frame.get_by_role("combobox", name="Colour range")


def picture(name: str) -> Path:
    """Return where a picture of this name is left."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES / f"{name}.png"
