"""While one types, what was analysed before, choices taken back, and examples that keep what they promise."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.axe import check
from tests.browser.visit import Visit, address
from tests.support.server import Server, eventually


def texts(server: Server) -> list[str]:
    """What the list of analyses holds, done ones only."""
    items = server.get("/analyses").json()["items"]
    return [item["text"] for item in items if item["status"] == "done"]


def kept(server: Server, *wanted: str) -> None:
    eventually(lambda: set(wanted) <= set(texts(server)), f"{wanted} in the list")


def typed(visit: Visit, text: str) -> None:
    """Type at the end of the text, and wait for what it becomes."""
    before = visit.now()
    visit.text.press("End")
    visit.page.keyboard.insert_text(text)  # at once: a slow machine would analyse half of it
    visit.settled(before)


def test_typing_is_followed(visits: Callable[..., Visit], server: Server) -> None:
    """The grid follows the text; what is new is marked; neither the list nor the back button fills with texts on the way."""
    visit = visits(new=True).open(address(text="The red cat"))
    entries = visit.page.evaluate("history.length")
    typed(visit, " sat")
    visit.shows("The", "red", "cat", "sat")
    expect(visit.page.locator("button.fresh")).to_have_text(["sat"])
    typed(visit, " still")
    visit.shows("The", "red", "cat", "sat", "still")
    expect(visit.page.locator("button.fresh")).to_have_text(["still"])
    expect(visit.page).to_have_url(re.compile("text=The.red.cat.sat.still"))
    visit.holds(f"history.length === {entries + 1}")
    eventually(lambda: "The red cat sat" not in texts(server), "what was typed in passing is forgotten")
    kept(server, "The red cat", "The red cat sat still")
    visit.page.go_back()
    visit.shows("The", "red", "cat")
    expect(visit.text).to_have_value("The red cat")


@pytest.mark.long
def test_heads_that_moved_are_marked(visit: Visit) -> None:
    visit.open(address(text="The bank of the river"))
    typed(visit, " was closed")
    expect(visit.page.locator("[role=gridcell].moved")).to_have_count(3)
    expect(visit.page.locator("[role=gridcell].moved").first).to_have_accessible_description(
        "Among the heads whose weights changed most"
    )
    expect(visit.page.get_by_text("weights changed most since the previous text: ")).to_be_visible()
    visit.idle()
    check(visit)


@pytest.mark.long
def test_what_enter_asks_for_is_kept(visit: Visit, server: Server) -> None:
    """Also when it was typed before, and other texts after it."""
    visit.open()
    visit.submit("A blue dog")
    typed(visit, " sat")
    visit.submit("A blue dog sat")
    typed(visit, " up")
    visit.shows("A", "blue", "dog", "sat", "up")
    kept(server, "A blue dog", "A blue dog sat", "A blue dog sat up")


def test_live_is_a_switch(visit: Visit) -> None:
    """Off it stays off, and nothing runs before Enter."""
    visit.open(address(text="One"))
    switch = visit.page.get_by_role("checkbox", name="live")
    expect(switch).to_be_checked()
    switch.uncheck()
    visit.page.reload()
    visit.painted("head")
    expect(switch).not_to_be_checked()
    submitted = "performance.getEntriesByName('headscope:submit').length"
    before = visit.page.evaluate(submitted)
    visit.text.fill("One two")
    visit.page.get_by_role("button", name="Dark theme").click()
    visit.head(0, 0).click()
    expect(visit.image("Heat map of head 0.0")).to_be_visible()
    assert visit.page.evaluate(submitted) == before
    visit.submit("One two")
    visit.shows("One", "two")


@pytest.mark.long
def test_long_texts_wait_for_enter(visit: Visit) -> None:
    visit.open(address(text="One"))
    submitted = "performance.getEntriesByName('headscope:submit').length"
    before = visit.page.evaluate(submitted)
    visit.text.fill("word " * 70)
    visit.text.press("Tab")
    visit.submit("word " * 71)
    assert visit.page.evaluate(submitted) == before + 1


def test_history(visit: Visit) -> None:
    """What was analysed opens again as it was, with its address."""
    visit.open()
    visit.submit("History is one thing.")
    visit.lens("norm")
    visit.submit("History is another.")
    visit.page.get_by_title("Your past analyses").click()
    sheet = visit.page.get_by_role("dialog", name="History")
    # Its two lenses were two analyses of one text.
    expect(sheet.get_by_role("button", name="History is one thing.")).to_have_count(1)
    expect(sheet.get_by_role("button", name="History is another.")).to_contain_text("MiniLM (all-MiniLM-L6-v2) ·")
    expect(sheet.get_by_role("button", name="History is another.")).to_have_attribute("aria-current", "true")
    before = visit.now()
    sheet.get_by_role("button", name="History is one thing.").click()
    visit.painted("head", before)
    # The time that the first run took is not that of opening it.
    expect(visit.page.get_by_text(re.compile("^7 tokens · 72 heads$"))).to_be_visible()
    expect(sheet).to_be_hidden()
    expect(visit.text).to_have_value("History is one thing.")
    visit.shows("History", "is", "one", "thing", ".")
    visit.page.go_back()
    visit.shows("History", "is", "another", ".")


def test_choices_are_taken_back(visit: Visit) -> None:
    """One by one, and put back; a walk through heads is one choice; the first entry is never left."""
    visit.open(address(text="One two three.", head="0.0"))
    scale = visit.page.get_by_role("group", name="Scale")
    scale.get_by_text("log", exact=True).click()
    visit.head(0, 0).focus()
    for _ in range(3):
        visit.page.keyboard.press("ArrowRight")
    expect(visit.head(0, 3)).to_have_attribute("aria-selected", "true")
    visit.page.keyboard.press("Control+z")
    expect(visit.head(0, 0)).to_have_attribute("aria-selected", "true")
    expect(scale.get_by_role("radio", name="log")).to_be_checked()
    visit.page.keyboard.press("Control+z")
    expect(scale.get_by_role("radio", name="log")).not_to_be_checked()
    visit.page.keyboard.press("Control+z")
    visit.page.keyboard.press("Control+Shift+z")
    expect(scale.get_by_role("radio", name="log")).to_be_checked()
    visit.page.keyboard.press("Control+y")
    expect(visit.head(0, 3)).to_have_attribute("aria-selected", "true")
    # In a field the keys are the field's own.
    visit.text.fill("Changed")
    visit.text.press("Control+z")
    expect(visit.head(0, 3)).to_have_attribute("aria-selected", "true")


@pytest.mark.long
@pytest.mark.parametrize(
    ("lesson", "lens", "head", "compare"),
    [
        ("What a pronoun looks at", "weights", (3, 1), "off"),
        ("A column without effect", "effective", (4, 5), "side by side"),
        ("Six layers at once", "rollout", None, "off"),
    ],
)
def test_lessons(visit: Visit, lesson: str, lens: str, head: tuple[int, int] | None, compare: str) -> None:
    """Each opens on what it speaks about."""
    visit.open()
    visit.page.get_by_role("button", name="Examples", exact=True).click()
    visit.page.get_by_role("button", name="Tour of the lenses").click()
    before = visit.now()
    visit.page.get_by_role("dialog").get_by_role("button", name=re.compile(lesson)).click()
    visit.settled(before)
    expect(visit.page.get_by_role("combobox", name="Lens")).to_have_value(lens)
    expect(visit.page.get_by_role("group", name="Compare").get_by_role("radio", name=compare)).to_be_checked()
    if head:
        expect(visit.head(*head)).to_have_attribute("aria-selected", "true")
