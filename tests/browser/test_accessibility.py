"""No state of the page has anything that axe-core, the usual checker of accessibility, complains of: light, dark and narrow."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.test_gallery import ENTRIES, FRONTEND, gallery, settled
from tests.browser.visit import Visit, address, comes_to

__all__ = ["gallery"]  # a fixture, built once for both modules

AXE = (FRONTEND / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
RUN = """(rules) => axe.run(document, { resultTypes: ['violations'], ...(rules.length ? { runOnly: rules } : {}) }).then(({ violations }) => violations.flatMap(
  ({ id, help, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${help}: ${target.join(' ')}: ${failureSummary.split('\\n').at(-1).trim()}`)))"""
# Of the gallery; on a telephone what differs there.
NARROW = {"both-34", "side-64", "running", "sign-in", "image-50", "statistics-34", "studies-new", "studies-heads"}


def complaints(visit: Visit, *rules: str) -> list[str]:
    """What axe has to say of the page as it is now. It comes as a script of the browser's, which the page's policy does not concern."""
    if not visit.page.evaluate("'axe' in globalThis"):
        visit.page.evaluate(AXE)
    return list(visit.page.evaluate(RUN, list(rules)))


def check(visit: Visit, *, narrow: bool = True) -> None:
    """Nothing is wrong, light or dark, wide or narrow. Only colours differ between light and dark."""
    comes_to(lambda: complaints(visit), [])
    visit.page.emulate_media(color_scheme="dark")
    expect(visit.page.locator("html")).to_have_attribute("data-theme", "dark")
    comes_to(lambda: complaints(visit, "color-contrast"), [])
    if narrow:
        visit.page.set_viewport_size({"width": 390, "height": 844})
        comes_to(lambda: complaints(visit), [])


@pytest.mark.parametrize("entry", ENTRIES)
def test_gallery(browser: Browser, gallery: str, entry: str) -> None:
    """Every view in every state."""
    visit = Visit(browser, gallery, color_scheme="light")
    visit.page.goto(f"{gallery}/gallery/?entry={entry}")
    settled(visit, entry)
    check(visit, narrow=entry in NARROW)
    visit.close()


def test_opened_things(visits: Callable[..., Visit]) -> None:
    """A token pinned, an explanation, the menu of downloads; then the sheet with all keys."""
    visit = visits(color_scheme="light").open()
    visit.tokens.nth(2).click()
    visit.page.get_by_role("button", name="What is entropy?").click()
    visit.page.get_by_role("button", name="download").click()
    expect(visit.page.get_by_role("group", name="Download")).to_be_visible()
    check(visit)
    visit.page.emulate_media(color_scheme="light")
    visit.page.keyboard.press("Escape")
    visit.page.locator("h2").first.click()
    visit.page.keyboard.press("?")
    expect(visit.page.get_by_role("dialog")).to_be_visible()
    check(visit)


def test_error(visits: Callable[..., Visit]) -> None:
    """A request that is refused."""
    visit = visits(color_scheme="light")
    visit.network_errors_expected = True
    visit.page.goto(f"{visit.root}/{address(text='Hello.', model='none')}")
    expect(visit.alert).to_be_visible()
    check(visit)
