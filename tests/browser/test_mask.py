"""Tokens masked by click and by key: in the strip, the address, captions, undo, and beside the text unmasked."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser import axe
from tests.browser.test_comparison import analysed, hover, number, weights
from tests.browser.test_inputs import choose_model
from tests.browser.visit import Visit, address
from tests.support.extent import extent
from tests.support.server import Server

TEXT = "The cat sat because it was tired."


def test_mask_by_click_and_key(visit: Visit, server: Server) -> None:
    """What is drawn are the maps of the masked text; every step is in the address and can be undone."""
    visit.open(address(text=TEXT, head="4.5"))
    page = visit.page
    button = page.get_by_role("button", name=re.compile("^mask"))
    visit.tokens.nth(2).click()
    button.click()
    expect(page).to_have_url(re.compile("mask=2&"))
    expect(visit.tokens.nth(2)).to_have_text("[MASK]cat")
    expect(page.get_by_text(re.compile("masked: 2 .?\N{LEFT DOUBLE QUOTATION MARK}cat"))).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^unmask .?\N{LEFT DOUBLE QUOTATION MARK}cat"))).to_be_visible()

    masked, plain = (weights(server, analysed(server, text=TEXT, **more), 4, 5) for more in ({"mask": [2]}, {}))
    count, readout = len(plain), page.locator("p.readout")
    assert abs(masked[5, 8] - plain[5, 8]) > 1e-4
    page.keyboard.press("Escape")
    hover(visit, page.get_by_role("img", name=re.compile("^Heat map of head 4.5")), 5, 8, count)
    expect(readout).to_contain_text(number(masked[5, 8]))

    before = visit.now()
    page.get_by_role("button", name="compare unmasked").click()
    visit.settled(before)
    expect(page).to_have_url(re.compile("mask=2&compare=side&with=text"))
    hover(visit, page.get_by_role("img", name=re.compile("^Heat map")).first, 5, 8, count)
    expect(readout).to_contain_text(number(masked[5, 8]))
    expect(readout).to_contain_text(number(plain[5, 8]))
    page.get_by_role("group", name="Compare").get_by_text("off", exact=True).click()

    visit.tokens.nth(4).focus()
    page.keyboard.press("x")
    expect(page).to_have_url(re.compile("mask=2%2C4&|mask=2,4&"))
    expect(visit.tokens.nth(4)).to_have_text("[MASK]because")
    if extent(True, False):  # test_address.py loads a page again
        page.reload()
        expect(visit.tokens.nth(4)).to_have_text("[MASK]because")
    page.get_by_role("button", name="unmask all").click()
    expect(visit.tokens.nth(4)).to_have_text("because")
    expect(page).not_to_have_url(re.compile("mask="))
    page.keyboard.press("Control+z")
    expect(visit.tokens.nth(4)).to_have_text("[MASK]because")
    axe.check(visit)
    visit.submit("The dog sat because it was tired.")
    expect(page).not_to_have_url(re.compile("mask="))
    expect(visit.tokens.nth(4)).to_have_text("because")


@pytest.mark.long
def test_models_without_a_mask_token(visit: Visit) -> None:
    """A decoder refuses, with a reason, and the address stays as it was; another model drops the mask."""
    visit.open(address(text=TEXT, mask="2"))
    expect(visit.tokens.nth(2)).to_have_text("[MASK]cat")
    choose_model(visit, "writer")
    expect(visit.page).not_to_have_url(re.compile("mask="))
    visit.tokens.nth(2).click()
    expect(visit.page).to_have_url(re.compile("pins="))
    before = visit.page.url
    visit.network_errors_expected = True
    visit.page.get_by_role("button", name=re.compile("^mask")).click()
    expect(visit.alert).to_contain_text("This model has no mask token, so no token can be masked.")
    axe.check(visit, narrow=False)
    assert visit.page.url == before
    expect(visit.tokens.nth(2)).not_to_have_text(re.compile("MASK"))
    choose_model(visit, "t5")
    visit.page.get_by_role("toolbar", name="Tokens").get_by_role("button").nth(1).click()
    mask = visit.page.get_by_role("button", name=re.compile("^mask"))
    expect(mask).to_have_attribute("aria-disabled", "true")
    mask.press("Enter")
    expect(visit.page.get_by_text("Tokens of an encoder-decoder cannot be masked.")).to_be_visible()
