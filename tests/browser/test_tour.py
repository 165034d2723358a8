"""Examples and the tour of the lenses: each shows what it speaks of, whatever was chosen before, and its sentence stays above the figures."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from tests.browser.visit import Visit, address
from tests.support.extent import extent


def step(visit: Visit, name: str) -> Locator:
    """Choose an example or a step by its button, and wait for it; its caption."""
    before = visit.now()
    visit.page.get_by_role("button", name=re.compile(f"^{name}")).first.click()
    visit.settled(before)
    return visit.page.get_by_role("complementary")


def test_an_example_chooses_everything_that_it_speaks_of(visit: Visit) -> None:
    """Another model, mechanism, lens and comparison from before are left; its sentence stays, also after a reload."""
    visit.open(
        address(
            text="Cats sleep.",
            model="twin-bert-softmax",
            lens="norm",
            compare="side",
            **{"with": "model", "than": "twin-bert-hopfield"},
        )
    )
    visit.page.get_by_role("button", name="Examples", exact=True).click()
    caption = step(visit, "A pronoun")
    expect(visit.page.get_by_role("combobox", name="Model")).to_have_value("minilm")
    expect(visit.page.get_by_role("combobox", name="Mechanism")).to_have_value("softmax")
    expect(visit.page.get_by_role("combobox", name="Lens")).to_have_value("weights")
    expect(visit.page.get_by_role("group", name="Compare").get_by_role("radio", name="off")).to_be_checked()
    expect(visit.head(3, 1)).to_have_attribute("aria-selected", "true")
    expect(caption).to_contain_text("Examples, 2 of 7. A pronoun: is “it” the trophy or the suitcase?")
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        visit.painted("head")
        expect(caption).to_contain_text("A pronoun:")
    visit.head(0, 0).click()
    caption.get_by_role("button", name="Show head 3.1 again").click()
    expect(visit.head(3, 1)).to_have_attribute("aria-selected", "true")
    visit.idle()
    visit.submit("Dogs bark.")
    expect(caption).to_have_count(0)


def test_the_tour_goes_on(visit: Visit) -> None:
    """From one lens to the next and back, by the button beside the sentence, until it is closed."""
    visit.open()
    visit.page.get_by_role("button", name="Examples", exact=True).click()
    visit.page.get_by_role("button", name="Tour of the lenses").click()
    caption = step(visit, "Weights")
    expect(caption).to_contain_text("Tour of the lenses, 1 of 13. What a pronoun looks at. Point at “it”")
    step(visit, "Next")
    expect(caption).to_contain_text("A column without effect.")
    expect(visit.page.get_by_role("combobox", name="Lens")).to_have_value("effective")
    expect(visit.page.get_by_role("group", name="Compare").get_by_role("radio", name="side by side")).to_be_checked()
    if extent(True, False):
        step(visit, "Previous")
        expect(caption).to_contain_text("What a pronoun looks at.")
        expect(visit.page.get_by_role("group", name="Compare").get_by_role("radio", name="off")).to_be_checked()
    caption.get_by_role("button", name="Close the caption").click()
    expect(caption).to_have_count(0)
