"""What opens on the page has no violation that axe-core finds: light, dark and narrow.

Views over fixed data are checked in test_gallery.py; what another test has on screen already is checked there:
the sheets of models and measures, sessions, the menu to copy, small maps, similar heads, the scatter, masked tokens, sharing, and studies that are sent or deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.axe import check
from tests.browser.test_comparison import SENTENCE
from tests.browser.visit import Visit, address
from tests.support.extent import extent


@pytest.mark.long
def test_opened_things(visits: Callable[..., Visit]) -> None:
    """A token pinned, an explanation, the menus; the boxes of the text; the sentences to try; then the sheet with all keys."""
    visit = visits(color_scheme="light").open()
    visit.tokens.nth(2).click()
    visit.page.get_by_role("button", name="What is entropy?").click()
    # Every explanation names its source, of measures as of the lens.
    for paper in ("Clark et al. 2019", "Vaswani et al. 2017"):
        expect(visit.page.get_by_role("link", name=paper)).to_be_visible()
    visit.page.get_by_role("button", name="download").click()
    expect(visit.page.get_by_role("group", name="Download")).to_be_visible()
    check(visit)
    visit.page.keyboard.press("Escape")
    visit.page.get_by_role("button", name="Examples", exact=True).click()
    expect(visit.page.get_by_role("group", name="Texts to begin with")).to_be_visible()
    check(visit)
    visit.page.keyboard.press("Escape")
    visit.text.click()
    expect(visit.page.get_by_role("button", name="as token ids")).to_be_visible()
    check(visit)
    visit.page.locator("h1").click()
    visit.page.get_by_role("button", name="sentences", exact=True).click()
    expect(visit.page.get_by_role("list", name="Sentences to try")).to_be_visible()
    # Nothing of the grid lies above it.
    visit.page.get_by_role("button", name="heads that ignore [SEP]").click(trial=True)
    check(visit)
    visit.page.keyboard.press("Escape")
    visit.page.locator("h2").first.click()
    visit.page.keyboard.press("?")
    expect(visit.page.get_by_role("dialog")).to_be_visible()
    check(visit)


def test_everything_at_once(visits: Callable[..., Visit]) -> None:
    """An example's caption, two texts compared, a masked token, a search whose part is being changed, a note too long, figures with their numbers.

    Also similar heads, a star, and a cell that is pinned in a zoomed map.
    """
    visit = visits(color_scheme="light")
    fields = {
        "tour": "pronoun",
        "text": SENTENCE,
        "head": "3.1",
        "mask": "2",
        "compare": "side",
        "with": "text",
        "than": "The trophy did not fit into the box because it was too big.",
        "find": "entropy < 2 and layer < 4",
        "notes": json.dumps({"minilm/self": {"3.1": "it", "4.5": ""}}),
        "like": "cosine",
        "figures": "rank",
        "scatter": "show",
        "colour": "entropy",
        "classes": "show",
        "pins": "q5 k2",
        "zoom": "0 0.1 0.5",
    }
    visit.open(address(**fields))
    page = visit.page
    page.get_by_role("textbox", name="Note on head 3.1").fill("x" * 501)
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Rank")).locator(".draglayer").first).to_be_attached()
    for numbers in page.get_by_role("button", name="numbers", exact=True).all():
        numbers.click()
    expect(page.get_by_role("region", name=re.compile("^Numbers of"))).to_have_count(2)
    page.get_by_role("list", name="Understood as").get_by_role("button", name="Change").first.click()
    expect(page.get_by_role("textbox", name="Change entropy < 2")).to_be_focused()
    expect(page.get_by_role("complementary", name="Examples")).to_be_visible()
    visit.idle()
    check(visit, narrow=extent(True, False), fully=True)  # narrow pages: test_gallery.py


# test_layout.py hides all but the figure, test_cell_tip.py shows the tip, and test_gallery.py checks the figure.
@pytest.mark.long
def test_the_figure_alone(visits: Callable[..., Visit]) -> None:
    """With the tip of the cell that has the focus, values in the cells, and a rectangle."""
    visit = visits(color_scheme="light").open(address(text=SENTENCE, head="3.1", focus="on"))
    cells = visit.page.get_by_role("application", name="Cells of the heat map of head 3.1")
    cells.focus()
    for key in ("ArrowDown", "Shift+ArrowRight", "+", "+"):
        cells.press(key)
    expect(visit.page.locator(".tip")).to_be_visible()
    check(visit)


# test_hostile.py, test_outdated.py and test_without_server.py show these; an alert is among everything above.
@pytest.mark.long
def test_messages(visits: Callable[..., Visit]) -> None:
    """A model that is unknown, pictures that are outdated, a text that is too long, and no network."""
    visit = visits(color_scheme="light")
    visit.network_errors_expected = True
    visit.page.goto(f"{visit.root}/{address(text='Hello.', model='none')}")
    expect(visit.alert).to_be_visible()
    check(visit)
    visit.page.goto("about:blank")
    visit.open(address(text=SENTENCE))
    visit.text.fill("word " * 600)
    expect(visit.page.get_by_text("Text changed, too long for live.")).to_be_visible()
    check(visit)
    visit.text.press("Enter")
    expect(visit.page.get_by_role("button", name="Analyse the first 512 tokens")).to_be_visible()
    check(visit)
    visit.context.set_offline(True)
    visit.text.fill("The red dog.")
    visit.text.press("Enter")
    expect(visit.page.get_by_role("button", name="Try again")).to_be_visible()
    check(visit)


@pytest.mark.long
def test_other_models(visits: Callable[..., Visit]) -> None:
    """One that writes on, one that sees but has no image yet, and one with layers to choose."""
    visit = visits(color_scheme="light").open(
        address(text="The cat sat.", model="writer", generate='{"max_new_tokens":4,"do_sample":true}')
    )
    check(visit)
    there = {
        "vit": visit.page.get_by_text("No image yet."),
        "large": visit.page.get_by_role("group", name="Layers shown"),
    }
    for model in there:
        visit.page.get_by_role("combobox", name="Model", exact=True).select_option(model)
        expect(there[model]).to_be_visible()
        visit.idle()
        check(visit)
