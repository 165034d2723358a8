"""The tasks of docs/how-to/keyboard.md from the sixteenth on, by keyboard alone; those of one visit are done one after the other."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.hands import leave, press, reach
from tests.browser.test_comparison import SENTENCE
from tests.browser.test_tasks import TASKS
from tests.browser.visit import Visit, address

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "keyboard.md"
TEXTS = "The boats lay by the bank all winter.\nHer brother kept what the others had earned.\n"


def button(visit: Visit, name: str | re.Pattern[str]) -> Locator:
    return visit.page.get_by_role("button", name=name, exact=True)


def menu(visit: Visit, name: str) -> Locator:
    return visit.page.get_by_role("combobox", name=name, exact=True)


def act(visit: Visit, target: Locator) -> None:
    """Tab to something and press Enter."""
    reach(visit, target)
    press(visit, "Enter")


def heading(visit: Visit, name: str) -> None:
    expect(visit.page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def compare_two_heads(visit: Visit) -> None:
    press(visit, "v")
    expect(menu(visit, "head")).to_have_value("3.2")
    press(visit, "Shift+ArrowDown", "Shift+ArrowRight")
    expect(visit.image("Heat map of head 4.3")).to_be_visible()
    expect(visit.image("Heat map of head 3.1")).to_be_visible()
    reach(visit, menu(visit, "head"))
    press(visit, "ArrowDown")
    expect(visit.image("Heat map of head 4.4")).to_be_visible()
    leave(visit)
    press(visit, "v")
    expect(visit.image("Heat map of head 4.4")).to_be_hidden()


def show_heads_one_by_one(visit: Visit) -> None:
    press(visit, "ArrowLeft", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight", "m")
    small = visit.page.get_by_role("img", name=re.compile("^Small map of head"))
    expect(small).to_have_count(3)
    act(visit, button(visit, "Open head 3.2"))
    heading(visit, "Head 3.2")
    expect(small).to_have_count(0)


def list_similar_heads(visit: Visit) -> None:
    press(visit, "l")
    first = visit.page.get_by_role("list", name="Similar heads").get_by_role("button", name=re.compile("^Open")).first
    expect(first).to_be_focused()
    name = first.inner_text()
    press(visit, "Enter")
    heading(visit, f"Head {name}")
    heading(visit, f"Heads like {name}")
    press(visit, "l")
    expect(visit.page.get_by_role("list", name="Similar heads")).to_have_count(0)


def star_and_note(visit: Visit) -> None:
    press(visit, "s", "n")
    visit.page.keyboard.type("Looks back.")
    leave(visit)
    press(visit, "ArrowDown")
    starred = visit.page.get_by_role("list", name="Starred heads").get_by_role("button")
    name = starred.inner_text()
    act(visit, starred)
    expect(visit.page.get_by_role("textbox", name=f"Note on head {name}")).to_have_value("Looks back.")
    leave(visit)


def keep_a_session(visit: Visit) -> None:
    press(visit, "o")
    reach(visit, visit.page.get_by_role("textbox", name="Name of the session"))
    visit.page.keyboard.type("Trophy")
    press(visit, "Enter")
    expect(visit.page.get_by_text("“Trophy” is saved in this browser.")).to_be_visible()
    kept = visit.page.get_by_role("heading", name=re.compile("^Head [0-9.]+$")).inner_text()
    press(visit, "Escape", "Home", "ArrowLeft", "o")
    act(visit, button(visit, "Trophy"))
    expect(visit.page.get_by_role("dialog")).to_be_hidden()
    heading(visit, kept)


def mask_a_token(visit: Visit) -> None:
    leave(visit)
    reach(visit, visit.tokens.first)
    press(visit, "ArrowRight", "ArrowRight", "x")
    expect(visit.tokens.nth(2)).to_have_text("[MASK]trophy")
    expect(visit.tokens.nth(2)).to_be_focused()
    visit.idle()
    act(visit, button(visit, "compare unmasked"))
    compare = visit.page.get_by_role("group", name="Compare")
    expect(compare.get_by_role("radio", name="side by side", exact=True)).to_be_checked()
    visit.idle()
    reach(visit, visit.tokens.nth(2), "Shift+Tab")
    press(visit, "x")
    expect(visit.tokens.nth(2)).to_have_text("trophy")
    leave(visit)
    press(visit, "c", "c")
    expect(compare.get_by_role("radio", name="off", exact=True)).to_be_checked()
    visit.idle()


def leave_sinks_out(visit: Visit) -> None:
    choice = menu(visit, "Special tokens and sinks")
    reach(visit, choice)
    press(visit, "ArrowDown", "ArrowDown")
    expect(choice).to_have_value("hide")
    expect(visit.page.get_by_role("img", name=re.compile("^Heat map"))).to_have_accessible_description(
        re.compile("Without special tokens and sinks")
    )
    press(visit, "Home")
    expect(choice).to_have_value("show")


def choose_the_colour_range(visit: Visit) -> None:
    choice = menu(visit, "Colour range")
    reach(visit, choice)
    press(visit, "ArrowDown")
    expect(choice).to_have_value("row")
    expect(visit.page.get_by_role("figure").filter(has=choice)).to_contain_text("share of the row maximum")
    press(visit, "Home")
    leave(visit)


def copy_a_link(visit: Visit) -> None:
    act(visit, button(visit, "copy"))
    act(visit, button(visit, "Copy link"))
    expect(visit.page.get_by_role("group", name="Copy").get_by_role("status")).to_have_text("Link copied.")
    assert visit.page.evaluate("navigator.clipboard.readText()") == visit.page.url
    press(visit, "Escape")
    expect(button(visit, "copy")).to_be_focused()
    leave(visit)


def point_a_colleague_at_a_cell(visit: Visit) -> None:
    reach(visit, visit.page.get_by_role("application", name=re.compile("^Cells of ")))
    press(visit, "Home", "ArrowDown", "ArrowRight", "Enter", "+")
    expect(visit.page).to_have_url(re.compile("zoom="))
    pinned = re.findall(r"pins=(q\d+\+k1)(?:&|$)", visit.page.url)
    assert pinned, visit.page.url
    visit.page.reload()
    visit.painted("head")
    expect(button(visit, "whole map")).to_be_visible()
    expect(visit.page.locator("button.lit")).not_to_have_count(0)
    act(visit, button(visit, "whole map"))
    press(visit, "Escape")
    expect(visit.page.locator("button.lit")).to_have_count(0)
    leave(visit)


def only_the_figure(visit: Visit) -> None:
    press(visit, ".")
    expect(visit.page.get_by_role("banner")).to_be_hidden()
    press(visit, "Escape")
    expect(visit.page.get_by_role("banner")).to_be_visible()


def move_the_border(visit: Visit) -> None:
    border = visit.page.get_by_role("separator", name="Width of the grid of heads")
    before = border.get_attribute("aria-valuenow") or ""
    reach(visit, border)
    press(visit, "ArrowLeft", "ArrowLeft")
    expect(border).to_have_attribute("aria-valuenow", str(int(before) - 32))
    press(visit, "Enter")
    expect(border).to_have_attribute("aria-valuenow", before)
    leave(visit)


def look_around(visit: Visit) -> None:
    reach(visit, visit.page.get_by_role("application", name=re.compile("^Cells of ")))
    press(visit, "+", "+")
    frame = visit.page.get_by_role("slider", name=re.compile("^Visible part of "))
    reach(visit, frame)
    press(visit, "End", "ArrowLeft")
    expect(visit.page).to_have_url(re.compile(r"zoom=0\.6875\+0\.75\+0\.25"))
    press(visit, "0")
    expect(frame).to_have_count(0)
    leave(visit)


def fold_into_sentences(visit: Visit) -> None:
    press(visit, "/")
    visit.page.keyboard.type("The bank was steep. The boats lay there.")
    before = visit.now()
    press(visit, "Enter")
    visit.settled(before)
    reach(visit, visit.page.get_by_role("combobox", name="Tokens", exact=True))
    press(visit, "s")
    image = visit.page.get_by_role("img", name=re.compile("^Heat map of head"))
    expect(image).to_have_accessible_description(re.compile("2 sentences and 2 single tokens"))
    reach(visit, visit.page.get_by_role("application", name=re.compile("^Cells of ")))
    press(visit, "Home", "ArrowRight", "ArrowDown", "Enter")
    expect(visit.page).to_have_url(re.compile("zoom="))
    expect(image).not_to_have_accessible_description(re.compile("sentences"))


def answer_a_question(visit: Visit) -> None:
    press(visit, "f")
    visit.page.keyboard.type("vertical heads in layer 1")
    press(visit, "Enter")
    act(visit, button(visit, "the second, layer 1"))
    understood = visit.page.get_by_role("list", name="Understood as").get_by_role("button", name="Change")
    expect(understood).to_have_text(["vertical", "layer = 1"])
    visit.idle()
    press(visit, "f", "Delete")
    expect(understood).to_have_count(0)
    leave(visit)


def star_a_measure(visit: Visit) -> None:
    colour = menu(visit, "colour by")
    reach(visit, colour)
    press(visit, "End")
    dialog = visit.page.get_by_role("dialog", name="Colour by")
    search = dialog.get_by_role("combobox", name="Search measures")
    expect(search).to_be_focused()
    visit.page.keyboard.type("leverage")
    expect(dialog.get_by_role("option").first).to_contain_text("everage")
    star = dialog.get_by_role("button", name=re.compile("favourites?$", re.IGNORECASE))
    act(visit, star)
    expect(star).to_have_attribute("aria-pressed", "true")
    reach(visit, search, "Shift+Tab")
    press(visit, "Enter")
    expect(dialog).to_be_hidden()
    expect(colour).to_have_value("leverage")
    expect(colour.locator("optgroup[label=Favourites] option")).to_have_count(7)
    visit.idle()
    leave(visit)


def open_a_statistic(visit: Visit) -> None:
    section = visit.page.get_by_role("region", name="Statistics")
    act(visit, section.get_by_role("button", name="Entropy", exact=True))
    figure = section.get_by_role("img", name=re.compile("^Entropy. "))
    expect(figure.locator(".draglayer").first).to_be_attached()
    act(visit, section.get_by_role("group", name="Numbers and files of entropy").get_by_role("button", name="numbers"))
    expect(section.get_by_role("region", name="Numbers of entropy").get_by_role("row")).to_have_count(7)
    visit.idle()
    press(visit, "Escape")
    expect(figure).to_have_count(0)
    leave(visit)


def select_in_a_scatter(visit: Visit) -> None:
    act(visit, button(visit, "Scatter"))
    plot = visit.page.get_by_role("img", name=re.compile("^Scatter of heads"))
    expect(plot).to_be_visible()
    axis = menu(visit, "x axis")
    reach(visit, axis)
    title = axis.locator("option:checked").inner_text()
    reach(visit, visit.page.get_by_role("spinbutton", name=f"{title} from"))
    visit.page.keyboard.type("0")
    chooses = visit.page.get_by_role("button", name=re.compile(r"^select \d+ heads"))
    wanted = re.findall(r"\d+", chooses.inner_text())[0]
    press(visit, "Enter")
    heading(visit, f"{wanted} heads")
    visit.idle()
    press(visit, "Escape")
    expect(plot).to_have_count(0)
    leave(visit)


def walk_the_tour(visit: Visit) -> None:
    press(visit, "e")
    before = visit.now()
    act(visit, visit.page.get_by_role("dialog").get_by_role("button", name=re.compile("What a pronoun looks at")))
    visit.settled(before)
    caption = visit.page.get_by_role("complementary", name="Tour of the lenses")
    expect(caption).to_contain_text("1 of 13")
    before = visit.now()
    act(visit, caption.get_by_role("button", name="Next"))
    visit.settled(before)
    expect(caption).to_contain_text("2 of 13")
    act(visit, caption.get_by_role("button", name="Close the caption"))
    expect(caption).to_have_count(0)


def add_and_remove_a_model(visit: Visit) -> None:
    model = menu(visit, "Model")
    reach(visit, model)
    press(visit, "End")
    dialog = visit.page.get_by_role("dialog", name="Models")
    expect(dialog.get_by_role("combobox", name="Search models")).to_be_focused()
    visit.page.keyboard.type("org/tiny")
    act(visit, dialog.get_by_role("button", name="Add it to the server"))
    use = dialog.get_by_role("button", name="Use this model")
    expect(use).to_be_visible()
    act(visit, use)
    visit.idle()
    expect(model).to_have_value("org/tiny")
    reach(visit, model)
    visit.page.keyboard.type("minilm")
    expect(model).to_have_value("minilm")
    visit.idle()
    press(visit, "End")
    visit.page.keyboard.type("org/tiny")
    act(visit, dialog.get_by_role("button", name="Remove …"))
    act(visit, dialog.get_by_role("button", name="Remove", exact=True))
    expect(dialog.get_by_role("button", name="Add it to the server")).to_be_visible()
    press(visit, "Escape")
    expect(dialog).to_be_hidden()


def judge_heads(visit: Visit) -> None:
    reach(visit, menu(visit, "Model"))
    before = visit.now()
    visit.page.keyboard.type("writer")
    visit.settled(before)
    leave(visit)
    press(visit, "p")
    predictions = visit.page.get_by_role("group", name="Predictions", exact=True).get_by_role("button")
    act(visit, predictions.nth(1))
    expect(predictions.nth(1)).to_have_attribute("aria-pressed", "true")
    methods = visit.page.get_by_role("group", name="colour by")
    reach(visit, methods.get_by_role("radio", name="map"))
    press(visit, "ArrowRight", "ArrowRight")
    expect(methods.get_by_role("radio", name="ablation")).to_be_checked()
    expect(visit.page.get_by_text("ablation in logits")).to_be_visible()
    leave(visit)
    press(visit, "x")
    without = visit.page.get_by_role("group", name="Predictions without these heads")
    expect(without.get_by_role("button")).to_have_count(5)
    press(visit, "x", "p")
    expect(predictions).to_have_count(0)


def run_a_study(visit: Visit) -> None:
    # Chromium hands file choosers over from here on; asked only at the key, it may be too late on a busy machine.
    visit.page.on("filechooser", lambda _: None)
    leave(visit)
    act(visit, visit.page.get_by_role("link", name="Studies"))
    expect(visit.page.get_by_role("navigation", name="Studies")).to_be_visible()
    press(visit, "n")
    heading(visit, "New study")
    reach(visit, button(visit, "Choose a file"))
    expect(button(visit, "Choose a file")).to_be_focused()
    with visit.page.expect_file_chooser() as chooser:
        press(visit, "Enter")
    chooser.value.set_files({"name": "two.txt", "mimeType": "text/plain", "buffer": TEXTS.encode()})
    expect(visit.page.get_by_text("2 usable rows")).to_be_visible()
    act(visit, button(visit, "Start"))
    expect(visit.page.get_by_text(re.compile("^2 inputs · "))).to_be_visible()
    press(visit, "f")
    expect(visit.page.get_by_role("searchbox", name="Find heads")).to_be_focused()
    visit.page.keyboard.type("layer < 2")
    press(visit, "Enter")
    expect(visit.page.get_by_role("list", name="Heads found").get_by_role("listitem")).to_have_count(24)
    grid = visit.page.get_by_role("grid", name="Heads")
    reach(visit, grid.locator("[tabindex='0']"))
    press(visit, "Home", "Enter")
    expect(visit.page.get_by_role("heading", name=re.compile(r"^Head \d\.0$"))).to_be_visible()


OF_HEADS: dict[str, Callable[[Visit], None]] = {
    "Compare two heads": compare_two_heads,
    "Show several heads one by one": show_heads_one_by_one,
    "List heads like the open one": list_similar_heads,
    "Star a head and write a note": star_and_note,
    "Save a session and open it again": keep_a_session,
    "Mask a token": mask_a_token,
    "Leave out special tokens and sinks": leave_sinks_out,
    "Choose the colour range": choose_the_colour_range,
    "Copy the link": copy_a_link,
    "Point a colleague at a cell": point_a_colleague_at_a_cell,
    "Show only the figure": only_the_figure,
    "Move the border between grid and map": move_the_border,
    "Look around a zoomed map": look_around,
    "Fold a text into sentences": fold_into_sentences,
}
OF_THE_PAGE: dict[str, Callable[[Visit], None]] = {
    "Answer a question of the find box": answer_a_question,
    "Find a measure and star it": star_a_measure,
    "Open a statistic, and close it": open_a_statistic,
    "Select heads in a scatter": select_in_a_scatter,
    "Walk through the tour": walk_the_tour,
    "Add a model and remove it": add_and_remove_a_model,
    "Judge heads by a prediction": judge_heads,
    "Run a study": run_a_study,
}


def test_the_list_is_what_is_done() -> None:
    done = [*TASKS, *OF_HEADS, *OF_THE_PAGE]
    assert re.findall(r"^\d+\. \*\*(.+?)\.\*\*", PAGE.read_text(), re.MULTILINE) == done


@pytest.mark.long
def test_tasks_about_heads(visits: Callable[..., Visit]) -> None:
    """Each task of the list, in its order, from the same text."""
    visit = visits(permissions=["clipboard-read", "clipboard-write"])
    visit.open(address(text=SENTENCE, head="3.1"))
    for task in OF_HEADS.values():
        task(visit)


@pytest.mark.long
def test_tasks_about_the_page(visits: Callable[..., Visit]) -> None:
    """Each task of the list, in its order; the hub of these tests has the model that is added."""
    visit = visits(new=True)
    visit.open(address(text=SENTENCE, head="3.1"))
    for task in OF_THE_PAGE.values():
        task(visit)
