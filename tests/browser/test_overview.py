"""The overview of a zoomed map, and what must fit at the size of a laptop."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.axe import check
from tests.browser.test_head import SENTENCE
from tests.browser.visit import Visit, address, another_picture, box, comes_to, picture
from tests.support.extent import extent

WHOLE = "element => element.scrollWidth <= element.clientWidth"


def window(visit: Visit) -> list[float]:
    """The left and upper edge and the size of the visible part, as the address has them."""
    fields = parse_qs(visit.page.evaluate("location.hash.slice(1)"))
    return [float(part) for part in fields.get("zoom", ["0 0 1"])[0].split()]


def overview(visit: Visit, head: str) -> Locator:
    return visit.page.get_by_role("slider", name=f"Visible part of the heat map of head {head}")


def test_overview_of_a_zoomed_map(visit: Visit) -> None:
    """Only while the map is zoomed, in the corner of the names: keys and the pointer move the frame, and the map with it."""
    visit.open(address(text=SENTENCE, head="4.5", view="map"))
    small = overview(visit, "4.5")
    expect(small).to_have_count(0)
    cells = visit.page.get_by_role("application", name="Cells of the heat map of head 4.5")
    cells.focus()
    cells.press("+")
    expect(small).to_be_visible()
    image = visit.image("Heat map of head 4.5")
    before = picture(image)
    comes_to(lambda: window(visit)[2], 0.5)
    small.focus()
    small.press("End")
    comes_to(lambda: window(visit), [0.5, 0.5, 0.5])
    seen = another_picture(image, before)
    small.press("Home")
    comes_to(lambda: window(visit), [0, 0, 0.5])
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        small.press(key)
    comes_to(lambda: window(visit), [0.125, 0.25, 0.5])
    another_picture(image, before, seen)
    expect(small).to_have_attribute("aria-valuetext", "Only queries 4 to 11 and keys 2 to 9 are shown.")
    # Below the names of rows and left of those of columns nothing is covered.
    place, whole = box(small), box(image)
    assert place["x"] + place["width"] < whole["x"] + 74
    assert place["y"] + place["height"] < whole["y"] + 74 - 8

    # The frame keeps its hold on the pointer; a press beside it brings it there.
    x, y, side = place["x"], place["y"], place["width"]
    visit.page.mouse.move(x + 0.3 * side, y + 0.4 * side)
    visit.page.mouse.down()
    visit.page.mouse.move(x + 0.5 * side, y + 0.5 * side, steps=3)
    visit.page.mouse.up()
    comes_to(lambda: [round(part, 2) for part in window(visit)], pytest.approx([0.33, 0.35, 0.5], abs=0.02))
    visit.page.mouse.click(x + 0.95 * side, y + 0.05 * side)
    comes_to(lambda: window(visit), [0.5, 0, 0.5])
    check(visit, narrow=False)
    small.press("-")
    expect(small).to_have_count(0)
    # The map of another head has the same overview, and a phone has room for it.
    if extent(True, False):
        visit.page.goto("about:blank")
        visit.page.set_viewport_size({"width": 390, "height": 844})
        visit.open(address(text=SENTENCE, head="2.9", zoom="0.25 0.25 0.5", view="map"))
        expect(overview(visit, "2.9")).to_be_visible()


@pytest.mark.long
def test_what_fits_at_the_size_of_a_laptop(visits: Callable[..., Visit]) -> None:
    """Both titles beside each other, with one choice of the range; the whole scatter, with the title of its axis; a pattern without a mark has no empty sign."""
    visit = visits(viewport={"width": 1366, "height": 768})
    visit.open(address(text=SENTENCE, head="3.1", **{"with": "head"}, than="4.5", compare="side", classes="on"))
    for name in ("Head 3.1", "Head 4.5"):
        title = visit.page.get_by_role("figure").get_by_text(name, exact=True)
        expect(title).to_be_visible()
        assert title.evaluate(WHOLE)
    expect(visit.page.get_by_label("Colour range")).to_have_count(1)
    expect(visit.page.get_by_role("combobox", name=re.compile("^Head", re.IGNORECASE)).last).to_be_visible()
    key = visit.page.get_by_role("list", name="Patterns of heads").get_by_role("listitem")
    unmarked = key.filter(has_text="heterogeneous")
    expect(unmarked).to_have_text(re.compile(r"no mark:\s*heterogeneous \d+"))
    expect(unmarked.locator("canvas")).to_have_count(0)
    expect(key.filter(has_text="diagonal").first.locator("canvas")).to_have_count(1)
    visit.page.get_by_role("button", name="Scatter", exact=True).click()
    dots = visit.page.get_by_role("img", name=re.compile("^Scatter of heads"))
    place = box(dots)
    bar = box(visit.page.get_by_role("button", name="Scatter", exact=True))
    assert place["y"] + place["height"] <= bar["y"]
