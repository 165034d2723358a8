"""The tip beside a cell of the heat map: which cell it names, for pointer, keyboard and finger, and where it is drawn."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Locator, expect

from tests.browser.test_head import SENTENCE, cell, drag, number, weights
from tests.browser.visit import Visit, address, box, picture
from tests.support.server import Server


def tip(visit: Visit) -> Locator:
    return visit.page.locator(".tip")


def inside(visit: Visit) -> None:
    """The whole tip is in the window, and the page is no larger for it."""
    place, size = box(tip(visit)), visit.page.viewport_size
    assert size
    assert place["x"] >= 0
    assert place["x"] + place["width"] <= size["width"]
    assert place["y"] >= 0
    assert place["y"] + place["height"] <= size["height"]
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_pointer_and_keyboard(visit: Visit, server: Server) -> None:
    """The tip names the cell under the pointer or with focus, hides from screen readers and Escape, and is gone over names and while something is drawn."""
    visit.open(address(text=SENTENCE, head="4.5", view="map"))
    visit.idle()
    picture(visit.image("Heat map of head 4.5"))  # a map that is drawn again under a pointer that rests has no tip
    rows = weights(server, SENTENCE, 4, 5)
    count = len(rows)
    for query, key in ((2, 1), (count - 1, count - 1), (0, count - 1), (count - 1, 0)):
        visit.page.mouse.move(*cell(visit, query, key, count))
        names = [visit.tokens.nth(token).inner_text() for token in (query, key)]
        expect(tip(visit)).to_have_text(f"query{names[0]} key{names[1]} value{number(float(rows[query, key]))}")
        inside(visit)
        under, readout = box(tip(visit)), box(visit.page.locator("p.readout"))
        assert under["y"] + under["height"] <= readout["y"]
    expect(tip(visit)).to_have_attribute("aria-hidden", "true")
    expect(tip(visit)).to_have_css("pointer-events", "none")
    expect(tip(visit)).to_have_css("position", "fixed")
    visit.page.keyboard.press("Escape")
    expect(tip(visit)).to_have_count(0)
    visit.page.mouse.move(*cell(visit, 3, -1, count))
    expect(visit.page.locator("p.readout")).to_contain_text("…")
    expect(tip(visit)).to_have_count(0)
    drag(visit, cell(visit, 3, 5, count), cell(visit, 6, 8, count))
    expect(tip(visit)).to_have_count(0)
    cells = visit.page.get_by_role("application", name="Cells of the heat map of head 4.5")
    cells.focus()
    for press in ("ArrowDown", "ArrowDown", "ArrowRight", "+", "+"):
        cells.press(press)
    expect(tip(visit)).to_contain_text(number(float(rows[2, 1])))
    inside(visit)
    visit.text.focus()
    expect(tip(visit)).to_have_count(0)


def test_a_tap_on_a_narrow_screen(visits: Callable[..., Visit], server: Server) -> None:
    """A finger that taps a cell reads it; the next touch elsewhere takes the tip away."""
    visit = visits(new=True, viewport={"width": 390, "height": 844}, has_touch=True, color_scheme="light")
    visit.open(address(text=SENTENCE, head="4.5", view="map"))
    visit.image("Heat map of head 4.5").scroll_into_view_if_needed()
    rows = weights(server, SENTENCE, 4, 5)
    for query, key in ((5, 8), (5, len(rows) - 1)):
        visit.page.touchscreen.tap(*cell(visit, query, key, len(rows)))
        expect(tip(visit)).to_contain_text(number(float(rows[query, key])))
        inside(visit)
    expect(tip(visit)).to_have_css("color", "rgb(93, 95, 99)")
    visit.page.emulate_media(color_scheme="dark")
    expect(tip(visit)).to_have_css("color", "rgb(163, 162, 155)")
    visit.page.touchscreen.tap(3, 300)
    expect(tip(visit)).to_have_count(0)
