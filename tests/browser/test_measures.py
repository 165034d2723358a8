"""The menus of measures: favourites, and the sheet in which all are searched, explained and starred; and the signs of patterns."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.axe import check
from tests.browser.visit import Visit, address, another_picture, picture

# What is painted in the corner of the open head's ring, by which red frames are told from the map below.
RED = "getComputedStyle(document.querySelector('[role=gridcell].open')).boxShadow"
# Whether a menu is as wide as the name that is chosen.
WHOLE = """(menu) => {
  const context = new OffscreenCanvas(1, 1).getContext('2d')
  context.font = getComputedStyle(menu).font
  return context.measureText(menu.selectedOptions[0].text).width <= menu.clientWidth
}"""


def test_measures_are_searched_and_starred(visit: Visit) -> None:
    """What has no reading is hidden and counted; what is chosen is in the menu and the address; a star stays over a reload."""
    visit.open(address(text="The cat sat."))
    colour = visit.page.get_by_role("combobox", name="colour by")
    favourites = colour.locator("optgroup[label=Favourites] option")
    expect(favourites).to_have_count(6)
    colour.select_option(value="…")
    dialog = visit.page.get_by_role("dialog", name="Colour by")
    search, options = dialog.get_by_role("combobox"), dialog.get_by_role("option")
    expect(search).to_be_focused()
    expect(dialog.get_by_text("Favourites", exact=True)).to_be_visible()
    visit.page.keyboard.type("punct")
    expect(options.filter(has_text="part of speech")).to_have_count(0)
    dialog.get_by_role("button", name=re.compile("^show [0-9]+ without a reading here")).click()
    options.filter(has_text="part of speech: PUNCT").click()
    expect(dialog.get_by_text("No word of this text has this part of speech.")).to_be_visible()
    cited = dialog.get_by_role("link", name="Sun & Marasović 2021")
    expect(cited).to_have_attribute("href", "https://arxiv.org/abs/2105.08855")
    expect(dialog.get_by_text("Source: Sun & Marasović 2021, sec. 3.2 and fig. 1; after Kovaleva")).to_be_visible()
    expect(dialog.get_by_role("button", name="Use this measure")).to_be_disabled()
    check(visit)
    visit.page.set_viewport_size({"width": 1440, "height": 900})

    search.fill("distance")
    options.filter(has_text=re.compile("^1 token away")).click()
    dialog.get_by_role("button", name="Add to favourites").click()
    search.press("Enter")
    expect(dialog).to_be_hidden()
    visit.idle()
    expect(colour).to_have_value("qk_distance.from_1")
    assert colour.evaluate(WHOLE), "the name of the measure is cut off"
    expect(visit.page).to_have_url(re.compile("colour=qk_distance.from_1"))
    expect(visit.page.locator(".said")).to_have_text(re.compile(r"[0-9]\s%$"))
    visit.page.reload()
    visit.painted("head")
    expect(favourites).to_have_count(7)
    visit.page.goto(f"{visit.root}/{address(text='The cat sat.', colour='qk_distance.square')}")
    expect(visit.page.locator(".said")).to_have_text(re.compile("[0-9] tokens²$"))


def test_signs_of_patterns_leave_red_to_the_open_head(visit: Visit) -> None:
    """The class of a head is in its accessible description and in the key; the ring of the open head keeps its colour."""
    visit.open(address(text="The cat sat on the mat."))
    heads = visit.page.get_by_role("grid", name="Heads")
    plain, ring = picture(heads.locator("xpath=..")), visit.page.evaluate(RED)
    visit.page.get_by_role("checkbox", name="patterns").check()
    expect(visit.page.get_by_role("list", name="Patterns of heads")).to_contain_text("vertical")
    another_picture(heads.locator("xpath=.."), plain)
    expect(heads.get_by_role("gridcell").first).to_have_accessible_description(re.compile("^Pattern: "))
    assert visit.page.evaluate(RED) == ring
