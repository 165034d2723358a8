"""Two heads of one analysis against each other: chosen by menu, key or grid; every number against what the interface says."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.test_comparison import SENTENCE, analysed, compare_with, hover, number, weights
from tests.browser.visit import Visit, address
from tests.support.extent import extent
from tests.support.server import Server


def test_side_by_side_then_difference(visit: Visit, server: Server) -> None:
    """From the menu; the other head by Shift in the grid; both values, their similarity, the difference; all of it in the address."""
    visit.open(address(text=SENTENCE, head="3.1"))
    compare_with(visit, "another head")
    expect(visit.image("Heat map of head 3.2")).to_be_visible()
    visit.head(4, 5).click(modifiers=["Shift"])
    second = visit.image("Heat map of head 4.5")
    expect(second).to_be_visible()
    expect(visit.image("Heat map of head 3.1")).to_be_visible()
    expect(visit.page).to_have_url(re.compile("with=head&than=4.5"))
    expect(visit.head(4, 5)).to_have_attribute("aria-selected", "true")

    identity = analysed(server, text=SENTENCE)
    one, other = weights(server, identity, 3, 1), weights(server, identity, 4, 5)
    found = server.get(f"/analyses/{identity}/compare/{identity}", params={"layer": 3, "head": 1}).json()
    cosine, divergence = found["cosine"][4][5], found["js_divergence"][4][5]
    compared = visit.page.get_by_role("region", name="Compared")
    expect(compared).to_contain_text(f"Cosine of the two maps: {cosine:.2g}")
    expect(compared).to_contain_text(f"Jensen-Shannon divergence: {divergence:.2g} bits")
    ranked = {(i, j): value for i, row in enumerate(found["cosine"]) for j, value in enumerate(row) if (i, j) != (3, 1)}
    layer, head = max(ranked, key=ranked.__getitem__)
    expect(compared.get_by_role("button", name=f"Compare with head {layer}.{head}")).to_be_visible()
    readout = visit.page.locator("p.readout")
    hover(visit, second, 5, 2, len(one))
    expect(readout).to_contain_text(f"head 3.1 {number(one[5, 2])}")
    expect(readout).to_contain_text(f"head 4.5 {number(other[5, 2])}")
    expect(readout).to_contain_text(f"difference {number(other[5, 2] - one[5, 2])}")
    visit.page.get_by_role("combobox", name="colour by").select_option(label="Cosine")
    visit.head(layer, head).hover()
    expect(visit.page.get_by_text(f"{layer}.{head} \N{MIDDLE DOT} {ranked[layer, head]:.2g} cosine")).to_be_visible()

    visit.page.get_by_role("group", name="Compare").get_by_text("difference", exact=True).click()
    drawn = visit.image("Heat map of head 4.5 \N{MINUS SIGN} head 3.1")
    hover(visit, drawn, 5, 2, len(one))
    expect(readout).to_contain_text(f"difference {number(other[5, 2] - one[5, 2])}")
    visit.page.get_by_role("button", name="download").click()
    with visit.page.expect_download() as download:
        visit.page.get_by_role("button", name="This head as SVG").click()
    assert download.value.suggested_filename.startswith("headscope-head-3.1-and-head-4.5-")
    assert "Head 3.1 and head 4.5 of" in re.sub(r"<[^>]+>", " ", download.value.path().read_text())
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        expect(drawn).to_be_visible()


def test_keys_and_swapping(visit: Visit) -> None:
    """`v` compares with a neighbour and ends it; Shift and arrows walk the other head; opening the other head swaps the two."""
    visit.open(address(text=SENTENCE, head="3.1"))
    visit.page.keyboard.press("v")
    pick = visit.page.get_by_role("combobox", name="head", exact=True)
    expect(pick).to_have_value("3.2")
    visit.page.keyboard.press("Shift+ArrowDown")
    visit.page.keyboard.press("Shift+ArrowDown")
    expect(pick).to_have_value("5.2")
    expect(visit.head(3, 1)).to_have_class(re.compile("open"))
    pick.select_option(value="0.7")
    expect(visit.image("Heat map of head 0.7")).to_be_visible()
    visit.head(0, 7).click()
    expect(visit.page.get_by_role("heading", name="Head 0.7", exact=True)).to_be_visible()
    expect(pick).to_have_value("3.1")
    visit.page.keyboard.press("v")
    expect(visit.image("Heat map of head 3.1")).to_be_hidden()
    visit.page.go_back()
    expect(visit.image("Heat map of head 3.1")).to_be_visible()
