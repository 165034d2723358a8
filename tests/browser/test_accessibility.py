"""What opens on the page has no violation that axe-core finds. Views and their states: test_gallery.py."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.axe import check
from tests.browser.visit import Visit, address


def test_opened_things(visits: Callable[..., Visit]) -> None:
    """A token pinned, an explanation, the menu of downloads; the sentences to try; then the sheet with all keys."""
    visit = visits(color_scheme="light").open()
    visit.tokens.nth(2).click()
    visit.page.get_by_role("button", name="What is entropy?").click()
    # Every explanation names its source, of measures as of the lens.
    for paper in ("Clark et al. 2019", "Vaswani et al. 2017"):
        expect(visit.page.get_by_role("link", name=paper)).to_be_visible()
    visit.page.get_by_role("button", name="download").click()
    expect(visit.page.get_by_role("group", name="Download")).to_be_visible()
    check(visit)
    visit.page.emulate_media(color_scheme="light")
    visit.page.keyboard.press("Escape")
    visit.page.get_by_role("button", name="sentences", exact=True).click()
    expect(visit.page.get_by_role("list", name="Sentences to try")).to_be_visible()
    # Nothing of the grid lies above it.
    visit.page.get_by_role("button", name="heads that ignore [SEP]").click(trial=True)
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
