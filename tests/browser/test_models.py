"""The sheet of models: searched and described, added from the hub and removed, and the same for a comparison and a study."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.axe import check
from tests.browser.visit import Visit, address
from tests.support.extent import extent
from tests.support.hub import Hub

MORE = "Search, add or remove models …"


def sheet(visit: Visit, menu: str = "Model", label: str = MORE) -> Locator:
    """Open the sheet from a menu."""
    visit.page.get_by_role("combobox", name=menu, exact=True).select_option(label=label)
    dialog = visit.page.get_by_role("dialog", name=re.compile("Models|Compare with a model"))
    expect(dialog.get_by_role("combobox", name="Search models")).to_be_focused()
    return dialog


def test_a_model_is_found_and_chosen_by_the_keyboard(visit: Visit) -> None:
    """By family, kind and size; what it supports stands beside it; Enter takes it. In a comparison it says what can't be compared."""
    visit.open(address(text="The cat sat."))
    dialog = sheet(visit)
    options = dialog.get_by_role("option")
    expect(options.and_(dialog.locator("[aria-selected=true]"))).to_contain_text("MiniLM")
    expect(dialog.get_by_text("6 layers × 12 heads · 22.7 million parameters").last).to_be_visible()
    expect(dialog.get_by_text(re.compile("of [0-9]+ lenses"))).to_be_visible()
    visit.page.keyboard.type("bert 110")
    expect(options).to_have_count(1)
    expect(dialog.get_by_text("about 110 million parameters · 420 MiB to download").last).to_be_visible()
    check(visit)
    visit.page.set_viewport_size({"width": 1440, "height": 900})
    dialog.get_by_role("combobox").fill("writer decoder")
    visit.page.keyboard.press("Enter")
    visit.idle()
    expect(visit.page.get_by_role("combobox", name="Model", exact=True)).to_have_value("writer")

    other = sheet(visit, "Compare with", "another model …")
    other.get_by_role("combobox").fill("images vit on this server")
    expect(other.get_by_text("One of the two models reads text, the other images.").first).to_be_visible()
    expect(other.get_by_role("button", name="Use this model")).to_be_disabled()
    other.get_by_role("combobox").fill("minilm")
    other.get_by_role("button", name="Use this model").click()
    expect(visit.page.get_by_role("combobox", name="Compare with")).to_have_value("model:minilm")


def test_a_model_is_added_and_removed(visit: Visit, hub: Hub) -> None:
    """By its exact hub id: progress, cancel, use, remove; a failure is a sentence."""
    visit.network_errors_expected = True
    visit.open(address(text="The cat sat."))
    dialog = sheet(visit)
    search = dialog.get_by_role("combobox")
    search.fill("org/none")
    dialog.get_by_role("button", name="Add it to the server").click()
    expect(dialog.get_by_role("alert")).to_contain_text("could not be downloaded from the hub")
    if extent(True, False):  # the sheet is looked at above
        check(visit, narrow=False)

    with hub.holding():
        search.fill("org/tiny")
        dialog.get_by_role("button", name="Add it to the server").click()
        expect(dialog.get_by_role("status")).to_contain_text("downloaded")
        check(visit, narrow=False)
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog.get_by_role("button", name="Add it to the server")).to_be_visible()
    dialog.get_by_role("button", name="Add it to the server").click()
    dialog.get_by_role("button", name="Use this model").click()
    visit.idle()
    menu = visit.page.get_by_role("combobox", name="Model", exact=True)
    expect(menu).to_have_value("org/tiny")
    expect(visit.head(1, 3)).to_be_attached()

    menu.select_option(value="minilm")
    visit.idle()
    dialog = sheet(visit)
    dialog.get_by_role("combobox").fill("tiny")
    dialog.get_by_role("button", name="Remove …").click()
    expect(dialog.get_by_text("Stored analyses are kept")).to_be_visible()
    if extent(True, False):
        check(visit, narrow=False)
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(dialog.get_by_role("option")).to_have_count(0)
    assert menu.locator("option[value='org/tiny']").count() == 0


# test_twins.py chooses the model of a study, tests above use the sheet.
@pytest.mark.long
def test_a_study_takes_models_from_the_same_sheet(visit: Visit) -> None:
    """Its menu opens the sheet; a model of images cannot be studied."""
    visit.page.goto(f"{visit.root}/?studies#study=new")
    dialog = sheet(visit, "model")
    dialog.get_by_role("combobox").fill("vit")
    expect(dialog.get_by_text("a study reads texts").first).to_be_visible()
    dialog.get_by_role("combobox").fill("writer")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("combobox", name="model", exact=True)).to_have_value("writer")
