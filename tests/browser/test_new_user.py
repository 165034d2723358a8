"""Tasks of a person who has not read the docs, from an empty browser, by the shortest path that is on the screen; their actions are counted."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.visit import Visit, box, comes_to

LAPTOP = {"width": 1366, "height": 768}
LABEL = 74  # pixels that names take beside and above a heat map


class Person:
    """Counts what is done: a click, a key, a phrase that is typed."""

    def __init__(self, visit: Visit) -> None:
        self.visit, self.actions = visit, 0

    def click(self, what: Locator) -> None:
        what.click()
        self.actions += 1

    def type(self, words: str) -> None:
        self.visit.page.keyboard.insert_text(words)
        self.actions += 1

    def press(self, key: str) -> None:
        self.visit.page.keyboard.press(key)
        self.actions += 1

    def click_cell(self, name: str, query: int, key: int) -> None:
        """A cell of a heat map, by its tokens."""
        place, count = box(self.visit.image(name)), self.visit.tokens.count()
        side = (place["width"] - LABEL - 1) / count
        at = place["x"] + LABEL + (key + 0.5) * side, place["y"] + LABEL + (query + 0.5) * side
        self.visit.page.mouse.click(*at)
        self.actions += 1


@pytest.fixture
def person(visits: Callable[..., Visit]) -> Person:
    """In a browser that has never been here, on a laptop."""
    return Person(visits(viewport=LAPTOP, permissions=["clipboard-read", "clipboard-write"]).open())


def button(person: Person, name: str) -> Locator:
    return person.visit.page.get_by_role("button", name=name, exact=True)


def test_a_previous_token_head(person: Person) -> None:
    """Among the sentences beside the find box."""
    person.click(button(person, "sentences"))
    person.click(button(person, "open the best previous-token head"))
    expect(person.visit.page.get_by_role("heading", name="Head 0.2", exact=True)).to_be_visible()
    words = person.visit.page.get_by_role("region", name="In words")
    expect(words).to_contain_text(re.compile(r"9\d\s% of all weight goes to the previous token\."))
    assert person.actions == 2


def test_attention_to_sep_without_effect(person: Person) -> None:
    """A head that looks at [SEP]; its effective attention beside the weights; how much of it is effective, in words."""
    person.click(button(person, "sentences"))
    person.click(button(person, "open the head that looks most at [SEP]"))
    title = person.visit.page.locator("#head-title")
    expect(title).not_to_have_text("Head 2.9")
    head = title.inner_text().split()[1]
    person.click(button(person, "show effective"))
    effective = person.visit.image(f"Effective attention map of head {head}")
    expect(effective).to_be_visible()
    last = person.visit.tokens.count() - 1
    person.click_cell(f"Heat map of head {head}", 5, last)
    expect(person.visit.page.locator("p.readout")).to_contain_text(re.compile(r"\[SEP\].*weights.*effective attention"))
    words = person.visit.page.get_by_role("region", name="In words")
    expect(words.get_by_text(re.compile(r"% of the attention to \[SEP\] is effective\."))).to_be_attached()
    assert person.actions == 4


@pytest.mark.long
def test_heads_that_differ_between_two_sentences(person: Person) -> None:
    """The example is replaced at the first click; the second text is asked for where the first one is typed."""
    person.click(person.visit.text)
    person.type("The trophy did not fit because it was too big.")
    person.click(button(person, "compare with another text"))
    person.type("The trophy did not fit because it was too small.")
    person.press("Enter")
    listed = person.visit.page.get_by_role("list", name="Most different heads").get_by_role("button")
    expect(listed).to_have_count(5)
    person.visit.shows(*"The trophy did not fit because it was too big .".split())
    assert person.actions == 5


@pytest.mark.long
def test_a_figure_for_a_paper(person: Person) -> None:
    person.click(button(person, "download"))
    with person.visit.page.expect_download() as download:
        person.click(person.visit.page.get_by_role("button", name="This head as SVG"))
    assert download.value.suggested_filename.endswith(".svg")
    assert person.actions == 2


@pytest.mark.long
def test_a_link_to_one_cell(person: Person, visits: Callable[..., Visit]) -> None:
    """A click pins the cell, and the link to it is copied beside its value; the colleague sees the same value."""
    person.click_cell("Heat map of head 2.9", 2, 5)
    person.click(button(person, "copy link"))
    expect(button(person, "link copied")).to_be_visible()
    assert person.actions == 2
    readout = person.visit.page.locator("p.readout")
    value = re.findall(r"weights \d\.\d+", readout.inner_text())
    colleague = visits()
    colleague.page.goto(person.visit.page.evaluate("navigator.clipboard.readText()"))
    comes_to(lambda: re.findall(r"weights \d\.\d+", colleague.page.locator("p.readout").inner_text()), value)
    # Something else is pinned: it is another link.
    person.click_cell("Heat map of head 2.9", 3, 5)
    expect(button(person, "copy link")).to_be_visible()
