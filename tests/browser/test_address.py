"""The address contains every choice: reload, back and a shared link show the same."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.visit import Visit, another_picture, comes_to, picture

TEXT = "The bank by the river lent money to the boats of the bank in town."


def chosen(visit: Visit) -> None:
    expect(visit.text).to_have_value(TEXT)
    expect(visit.head(3, 1)).to_have_attribute("aria-selected", "true")
    expect(visit.page.get_by_role("combobox", name="Lens")).to_have_value("effective")
    expect(visit.page.get_by_role("radio", name="log", exact=True)).to_be_checked()


def choose(visit: Visit) -> tuple[int, int]:
    """A text, a head, a lens and a scale; the picture of all that."""
    visit.open()
    visit.submit(TEXT)
    visit.head(3, 1).click()
    image = visit.image("Heat map of head 3.1")
    expect(image).to_be_visible()
    visit.lens("effective")
    plain = picture(image)
    visit.page.get_by_role("group", name="Scale").get_by_text("log", exact=True).click()
    for part in ("head=3.1", "lens=effective", "scale=log"):
        expect(visit.page).to_have_url(re.compile(re.escape(part)))
    return another_picture(image, plain)


def test_reload_and_link_opened_elsewhere(visit: Visit, visits: Callable[..., Visit]) -> None:
    """The page that is loaded again, and a link opened in another window, show the same picture."""
    before = choose(visit)
    chosen(visit)
    visit.page.reload()
    visit.painted("head")
    chosen(visit)
    comes_to(lambda: picture(visit.image("Heat map of head 3.1")), before)
    other = visits().open(visit.page.url.removeprefix(visit.root + "/"))
    chosen(other)
    comes_to(lambda: picture(other.image("Heat map of head 3.1")), before)


def test_back_and_forward(visit: Visit) -> None:
    visit.open()
    visit.submit("One two.")
    visit.submit("Three four.")
    visit.shows("Three", "four", ".")
    visit.page.go_back()
    visit.shows("One", "two", ".")
    expect(visit.text).to_have_value("One two.")
    visit.page.go_back()
    expect(visit.tokens.filter(has_text="boats")).to_have_count(2)
    visit.page.go_forward()
    visit.shows("One", "two", ".")


@pytest.mark.long
def test_heads_opened_by_hand_are_steps(visit: Visit) -> None:
    visit.open()
    visit.head(0, 3).click()
    visit.head(5, 6).click()
    expect(visit.image("Heat map of head 5.6")).to_be_visible()
    visit.page.go_back()
    expect(visit.image("Heat map of head 0.3")).to_be_visible()
