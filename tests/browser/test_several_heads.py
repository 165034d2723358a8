"""Several selected heads, one small map each: on one scale, linked, in pages, as a picture, and over keys."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import expect
from safetensors.numpy import load

from tests.browser.axe import check
from tests.browser.test_comparison import SENTENCE, analysed, number, weights
from tests.browser.visit import Visit, address, box, picture
from tests.support.extent import extent
from tests.support.server import Server


def test_one_small_map_each(visit: Visit, server: Server) -> None:
    """Selected in the grid, shown by a key; a cell pointed at is read in every head; a click opens one and Back returns."""
    visit.open(address(text=SENTENCE, head="3.1"))
    visit.head(4, 5).click(modifiers=["Shift"])
    expect(visit.page.get_by_role("heading", name="Mean of 2 heads")).to_be_visible()
    visit.page.keyboard.press("m")
    small = visit.page.get_by_role("img", name=re.compile("^Small map of head"))
    expect(small).to_have_count(2)
    maps = {name: weights(server, analysed(server, text=SENTENCE), *name) for name in ((3, 1), (4, 5))}
    for layer, head in maps:
        largest = f"largest magnitude {maps[layer, head].max():.2g}"
        expect(visit.image(f"Small map of head {layer}.{head}")).to_have_accessible_description(
            re.compile(f"{largest}; exact")
        )
    place = box(visit.page.get_by_role("button", name="Open head 4.5"))
    side, count = place["width"] - 2, len(maps[3, 1])
    visit.page.mouse.move(place["x"] + 1 + 2.5 * side / count, place["y"] + 1 + 5.5 * side / count)
    for (layer, head), values in maps.items():
        expect(visit.page.get_by_text(f"Head {layer}.{head}{number(values[5, 2])}", exact=True)).to_be_visible()
    check(visit)
    visit.page.get_by_role("button", name="download").click()
    with visit.page.expect_download() as download:
        visit.page.get_by_role("button", name="These heads as SVG").click()
    words = re.sub(r"<[^>]+>", " ", download.value.path().read_text())
    assert "Heads 3.1, 4.5 of" in words
    assert "one scale for these heads" in words
    visit.page.get_by_role("button", name="Open head 3.1").click()
    expect(visit.image("Heat map of head 3.1")).to_be_visible()
    visit.page.go_back()
    expect(small).to_have_count(2)
    assert all(picture(image)[0] > 4 for image in small.all())
    visit.page.get_by_label("Special tokens and sinks").select_option("hide")
    grid = load(server.get(f"/analyses/{analysed(server, text=SENTENCE)}/grid/weights?without=both").content)["without"]
    kept = np.flatnonzero(~np.any([grid[name] for name in maps], axis=0))
    assert 0 < len(kept) < count
    for (layer, head), values in maps.items():
        largest = f"largest magnitude {values[np.ix_(kept, kept)].max():.2g}; exact"
        expect(visit.image(f"Small map of head {layer}.{head}")).to_have_accessible_description(re.compile(largest))


@pytest.mark.long
def test_pages_of_small_maps(visit: Visit) -> None:
    """More heads than can be merged: one by one, twelve to a page; the address keeps the page."""
    heads = [f"{layer}.{head}" for layer in range(3) for head in range(7)]
    visit.open(address(text=SENTENCE, head="0.0", heads=" ".join(heads)))
    small = visit.page.get_by_role("img", name=re.compile("^Small map of head"))
    expect(visit.page.get_by_role("heading", name="21 heads")).to_be_visible()
    expect(small).to_have_count(12)
    expect(visit.page.get_by_role("radio", name="mean")).to_be_disabled()
    visit.page.get_by_role("button", name="Next page of heads").click()
    expect(small).to_have_count(9)
    expect(visit.image("Small map of head 1.5")).to_be_visible()
    visit.page.reload()
    expect(visit.page.get_by_text("13–21 of 21")).to_be_visible()
    visit.page.get_by_role("button", name="Previous page of heads").press("Enter")
    expect(visit.image("Small map of head 0.0")).to_be_visible()


def test_heads_like_the_open_one(visit: Visit, server: Server) -> None:
    """Listed by a key in the order of the interface's numbers; a click opens one, and the list follows; in the address."""
    visit.open(address(text=SENTENCE, head="3.1"))
    identity = analysed(server, text=SENTENCE)

    def nearest(layer: int, head: int, by: str) -> list[str]:
        query = {"layer": layer, "head": head}
        found = server.get(f"/analyses/{identity}/compare/{identity}", params=query).json()[by]
        ranked = sorted(
            ((-1 if by == "cosine" else 1) * value, i, j)
            for i, row in enumerate(found)
            for j, value in enumerate(row)
            if (i, j) != (layer, head)
        )
        return [f"{i}.{j}" for _, i, j in ranked[:8]]

    visit.page.keyboard.press("l")
    names = visit.page.get_by_role("list", name="Similar heads").get_by_role("button", name=re.compile("^Open head"))
    expect(names).to_have_text(nearest(3, 1, "cosine"))
    check(visit, entry="map-two-heads-34")
    visit.page.get_by_role("radio", name="Jensen-Shannon").check(force=True)
    expect(names).to_have_text(nearest(3, 1, "js_divergence"))
    first = nearest(3, 1, "js_divergence")[0]
    names.first.press("Enter")
    expect(visit.page.get_by_role("heading", name=f"Heads like {first}")).to_be_visible()
    layer, head = map(int, first.split("."))
    expect(names).to_have_text(nearest(layer, head, "js_divergence"))
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        expect(names).to_have_text(nearest(layer, head, "js_divergence"))
    visit.page.get_by_role("button", name="Compare with head 3.1").click()
    expect(visit.image("Heat map of head 3.1")).to_be_visible()


# Small maps are in the first test, what can be copied in test_copy.py.
@pytest.mark.long
def test_heads_found_one_by_one(visit: Visit) -> None:
    """What a search finds is shown as small maps at a click; their citation names them."""
    visit.open(address(text=SENTENCE, head="3.1", find="layer = 0 and head < 3"))
    visit.page.get_by_role("button", name="show one by one").click()
    small = visit.page.get_by_role("img", name=re.compile("^Small map of head"))
    expect(small).to_have_count(3)
    expect(visit.image("Small map of head 0.2")).to_be_visible()
    visit.page.get_by_role("button", name="copy", exact=True).click()
    items = visit.page.get_by_role("group", name="Copy").get_by_role("button")
    expect(items).to_have_text(["link", "image", "citation"])
