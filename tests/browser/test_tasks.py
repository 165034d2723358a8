"""The first fifteen tasks of docs/how-to/keyboard.md, done one after the other by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.hands import leave, press, reach
from tests.browser.visit import Visit, another_picture, comes_to, picture
from tests.support.extent import extent


def chosen(visit: Visit, layer: int, head: int) -> None:
    expect(visit.head(layer, head)).to_have_attribute("aria-selected", "true")


def analyse_a_text(visit: Visit) -> None:
    press(visit, "/")
    expect(visit.text).to_be_focused()
    visit.page.keyboard.type("One two three.")
    before = visit.now()
    press(visit, "Enter")
    visit.settled(before)
    visit.shows("One", "two", "three", ".")


def give_a_second_text(visit: Visit) -> None:
    reach(visit, visit.page.get_by_role("textbox", name="Second segment"))
    visit.page.keyboard.type("Four.")
    before = visit.now()
    press(visit, "Enter")
    visit.settled(before)
    visit.shows("One", "two", "three", ".", "Four", ".")


def open_an_example_for_a_lens(visit: Visit) -> None:
    reach(visit, visit.page.get_by_role("button", name="Examples", exact=True))
    press(visit, "Enter")
    reach(visit, visit.page.get_by_role("button", name="Tour of the lenses"))
    press(visit, "Enter")
    reach(visit, visit.page.get_by_role("button", name=re.compile("High weight on short vectors")))
    before = visit.now()
    press(visit, "Enter")
    visit.settled(before)
    expect(visit.page.get_by_role("combobox", name="Lens")).to_have_value("norm")
    press(visit, "c", "c")  # it comes side by side with the weights
    expect(visit.page.get_by_role("group", name="Compare").get_by_role("radio", name="off")).to_be_checked()


def open_another_head(visit: Visit) -> None:
    leave(visit)
    chosen(visit, 1, 9)
    press(visit, "ArrowRight", "ArrowDown")
    chosen(visit, 2, 10)
    press(visit, "Home")
    chosen(visit, 2, 0)


def read_through_another_lens(visit: Visit) -> None:
    leave(visit)
    lens = visit.page.get_by_role("combobox", name="Lens")
    press(visit, "[")
    expect(lens).not_to_have_value("norm")
    press(visit, "]")
    expect(lens).to_have_value("norm")
    visit.idle()


def compare_two_lenses(visit: Visit) -> None:
    compare = visit.page.get_by_role("group", name="Compare")
    for name in ("side by side", "difference", "off"):
        press(visit, "c")
        expect(compare.get_by_role("radio", name=name, exact=True)).to_be_checked()
    visit.idle()


def run_another_mechanism(visit: Visit) -> None:
    mechanism = visit.page.get_by_role("combobox", name="Mechanism")
    before = visit.now()
    reach(visit, mechanism)
    press(visit, "ArrowDown")
    expect(mechanism).to_have_value("hopfield")
    visit.settled(before)


def colour_by_a_measure(visit: Visit) -> None:
    colour = visit.page.get_by_role("combobox", name="colour by")
    before = visit.now()
    reach(visit, colour)
    press(visit, "Home", "ArrowDown", "ArrowDown")
    expect(colour).not_to_have_value("map")
    visit.idle()
    visit.painted("grid", before)


def find_heads(visit: Visit) -> None:
    leave(visit)
    press(visit, "f")
    expect(visit.page.get_by_role("searchbox", name="Find heads")).to_be_focused()
    visit.page.keyboard.type("entropy < 1")
    press(visit, "Enter")
    expect(visit.page.get_by_text(re.compile(r"^\d+ of 72 heads"))).to_be_visible()


def read_a_cell(visit: Visit) -> None:
    leave(visit)
    reach(visit, visit.page.get_by_role("application", name=re.compile("^Cells of ")))
    press(visit, "Home", "ArrowRight")
    expect(visit.page.get_by_text(re.compile("^exactly [0-9]"))).to_be_visible()


def zoom_a_heat_map(visit: Visit) -> None:
    image = visit.image("Heat map of head 2.0")
    whole = picture(image)
    press(visit, "+", "+")
    expect(visit.page.get_by_role("button", name="whole map")).to_be_visible()
    another_picture(image, whole)
    press(visit, "0")
    comes_to(lambda: picture(image), whole)
    expect(visit.page.get_by_role("button", name="whole map")).to_be_hidden()


def pin_a_token(visit: Visit) -> None:
    reach(visit, visit.tokens.first)
    press(visit, "ArrowRight", "ArrowRight", "Enter")
    reach(visit, visit.page.get_by_role("button", name=re.compile("^What is")).first)
    expect(visit.tokens.nth(2)).to_contain_class("lit")
    press(visit, "Escape")
    expect(visit.page.locator("button.lit")).to_have_count(0)


def undo_and_redo(visit: Visit) -> None:
    leave(visit)
    scale = visit.page.get_by_role("group", name="Scale")
    reach(visit, scale.get_by_role("radio", checked=True))
    press(visit, "ArrowRight")
    expect(scale.get_by_role("radio", name="log")).to_be_checked()
    leave(visit)
    press(visit, "Control+z")
    expect(scale.get_by_role("radio", name="log")).not_to_be_checked()
    press(visit, "Control+Shift+z")
    expect(scale.get_by_role("radio", name="log")).to_be_checked()


def open_one_of_before(visit: Visit) -> None:
    leave(visit)
    press(visit, "h")
    reach(visit, visit.page.get_by_role("dialog", name="History").get_by_role("button", name="One two three. / Four."))
    before = visit.now()
    press(visit, "Enter")
    visit.painted("grid", before)
    visit.shows("One", "two", "three", ".", "Four", ".")
    expect(visit.text).to_have_value("One two three.")


def save_a_picture(visit: Visit) -> None:
    leave(visit)
    reach(visit, visit.page.get_by_role("button", name=re.compile("^download")))
    press(visit, "Enter")
    reach(visit, visit.page.get_by_role("button", name="This head as SVG"))
    with visit.page.expect_download() as download:
        press(visit, "Enter")
    assert download.value.suggested_filename.endswith(".svg")


TASKS: dict[str, Callable[[Visit], None]] = {
    "Analyse a text": analyse_a_text,
    "Give a second text": give_a_second_text,
    "Open an example for a lens": open_an_example_for_a_lens,
    "Open another head": open_another_head,
    "Read the attention through another lens": read_through_another_lens,
    "Compare two lenses": compare_two_lenses,
    "Run another mechanism": run_another_mechanism,
    "Colour the heads by a measure": colour_by_a_measure,
    "Find heads": find_heads,
    "Read the exact value of a cell": read_a_cell,
    "Zoom into a heat map": zoom_a_heat_map,
    "Pin a token": pin_a_token,
    "Undo a choice, and do it again": undo_and_redo,
    "Open an analysis of before": open_one_of_before,
    "Save a picture": save_a_picture,
}


# In test_keyboard.py, test_large.py, test_head.py, test_finding.py or test_everyday.py their keys are pressed, too.
LONG = {
    "Open another head",
    "Read the attention through another lens",
    "Compare two lenses",
    "Find heads",
    "Read the exact value of a cell",
    "Zoom into a heat map",
    "Pin a token",
    "Undo a choice, and do it again",
}


def test_fifteen_tasks(visit: Visit) -> None:
    visit.open()
    for name, task in TASKS.items():
        if name not in extent(set(), LONG):
            task(visit)
