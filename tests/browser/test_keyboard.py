"""Everything by keyboard alone, and where the focus is can always be seen."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from headscope.lenses import LENSES
from tests.browser.hands import focused
from tests.browser.visit import Visit, comes_to

ESCAPE_AND_O = """() => {
  const sheet = document.querySelector('dialog[open]')
  sheet.dispatchEvent(new Event('cancel'))
  sheet.close()
  dispatchEvent(new KeyboardEvent('keydown', { key: 'o' }))
}"""


def tab_to(visit: Visit, name: str) -> None:
    for _ in range(40):
        visit.page.keyboard.press("Tab")
        if focused(visit) == name:
            return
    raise AssertionError(f"Tab never comes to {name!r}")


# test_tasks.py analyses a text, test_large.py walks the heads.
@pytest.mark.long
def test_from_text_to_head_without_a_mouse(visit: Visit) -> None:
    visit.open()
    keyboard = visit.page.keyboard
    tab_to(visit, "text")
    keyboard.press("Control+a")
    keyboard.type("One two three.")
    before = visit.now()
    keyboard.press("Enter")
    visit.settled(before)
    visit.shows("One", "two", "three", ".")
    tab_to(visit, "Layer 2, head 9")
    for key, layer, head in [
        ("ArrowRight", 2, 10),
        ("ArrowDown", 3, 10),
        ("Home", 3, 0),
        ("ArrowUp", 2, 0),
        ("End", 2, 11),
    ]:
        keyboard.press(key)
        expect(visit.head(layer, head)).to_be_focused()
        focused(visit)
        expect(visit.image(f"Heat map of head {layer}.{head}")).to_be_visible()
        expect(visit.head(layer, head)).to_have_attribute("aria-selected", "true")
    keyboard.press("Enter")
    expect(visit.head(2, 11)).to_have_attribute("aria-selected", "true")


def test_keys_after_a_choice_by_hand(visit: Visit) -> None:
    """What was clicked last is no field to write in: single keys and undo work at once. What is pinned stays through another lens."""
    visit.open()
    lens = visit.page.get_by_role("combobox", name="Lens")
    visit.tokens.nth(3).click()
    visit.page.get_by_role("radio", name="graph", exact=True).check()
    expect(visit.page.get_by_role("img", name=re.compile("^Heat map of head"))).to_have_count(0)
    visit.page.keyboard.press("Control+z")
    expect(visit.page.get_by_role("img", name=re.compile("^Heat map of head"))).to_be_visible()
    visit.page.get_by_role("radio", name="log", exact=True).check()
    visit.page.keyboard.press("]")
    expect(lens).to_have_value("effective")
    before = visit.now()
    lens.select_option("norm")
    visit.painted("head", before)
    expect(visit.page.get_by_role("status").filter(has_text="Point at a cell")).to_have_count(0)


def test_single_keys(visit: Visit) -> None:
    """`]` `[` walk the lenses, `c` compares, `/` goes to the text, `?` lists all keys, Escape releases pins."""
    visit.open()
    keyboard = visit.page.keyboard
    lens = visit.page.get_by_role("combobox", name="Lens")
    last = list(LENSES)[-1]
    for key, name in [
        ("]", "effective"),
        ("]", "effective-simplex"),
        ("[", "effective"),
        ("[", "weights"),
        ("[", last),
    ]:
        keyboard.press(key)
        expect(lens).to_have_value(name)
    keyboard.press("]")
    compare = visit.page.get_by_role("group", name="Compare")
    for name in ("side by side", "difference", "off"):
        keyboard.press("c")
        expect(compare.get_by_role("radio", name=name, exact=True)).to_be_checked()
    keyboard.press("/")
    comes_to(lambda: focused(visit), "text")
    # What is typed there is text, not a command.
    keyboard.type("c]?")
    expect(visit.text).to_have_value("c]?")
    expect(compare.get_by_role("radio", name="off", exact=True)).to_be_checked()
    visit.shows("c", "]", "?")  # typed, and so analysed at the pause; while an analysis runs, Escape cancels it
    visit.idle()
    keyboard.press("Escape")
    expect(visit.text).not_to_be_focused()
    keyboard.press("?")
    sheet = visit.page.get_by_role("dialog", name="Keys, gestures, terms")
    expect(sheet).to_be_visible()
    keyboard.press("]")
    keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(lens).to_have_value("weights")
    keyboard.press("o")
    sheet = visit.page.get_by_role("dialog", name="Sessions")
    expect(sheet).to_be_visible()
    # A key that comes right after Escape, before the browser has told that the sheet is closed.
    visit.page.evaluate(ESCAPE_AND_O)
    visit.page.evaluate("new Promise(requestAnimationFrame)")
    expect(sheet).to_be_visible()
    keyboard.press("Escape")
    expect(sheet).to_be_hidden()


def test_tokens_and_pins(visit: Visit) -> None:
    """Tokens are walked like heads; one that is pinned stays lit until Escape."""
    visit.open()
    keyboard = visit.page.keyboard
    visit.tokens.first.focus()
    for _ in range(2):
        keyboard.press("ArrowRight")
    expect(visit.tokens.nth(2)).to_be_focused()
    keyboard.press("Enter")
    visit.page.get_by_role("button", name="What is entropy?").focus()
    expect(visit.tokens.nth(2)).to_contain_class("lit")
    keyboard.press("Escape")
    expect(visit.page.locator("button.lit")).to_have_count(0)
