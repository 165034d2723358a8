"""The scatter of all heads by two measures: every number against the interface, and three ways to select or open heads."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.axe import check
from tests.browser.test_comparison import SENTENCE
from tests.browser.visit import Visit, address, box
from tests.support.extent import extent
from tests.support.server import Server

LEFT, RIGHT, TOP, BOTTOM, MARGIN = 62, 16, 10, 44, 0.06


def numbers(server: Server, measure: str, column: str = "") -> np.ndarray:  # type: ignore[type-arg]
    """One number per head, [L, H], as the interface gives it."""
    identity = server.analyse(
        model="minilm", text=SENTENCE, lenses=["weights", "effective"], measures=["entropy", "special_tokens"]
    )["id"]
    found = server.get(f"/analyses/{identity}/measures/{measure}", params={"lens": "weights", "format": "json"}).json()
    values = np.array(found["values"], float)
    if column:
        return values[..., found["columns"].index(column)]
    return values.mean(-1)


def test_scatter_of_heads(visit: Visit, server: Server) -> None:
    """Two measures are chosen; a dot opens its head, a lasso and ranges select heads, the address holds all of it."""
    x, y = numbers(server, "entropy"), numbers(server, "special_tokens", "first")
    visit.open(address(text=SENTENCE, head="3.1"))
    visit.page.get_by_role("button", name="Scatter", exact=True).click()
    visit.page.get_by_role("combobox", name="y axis").select_option(value="…")
    dialog = visit.page.get_by_role("dialog", name="Y axis")
    dialog.get_by_role("combobox").fill("special tokens first")
    dialog.get_by_role("combobox").press("Enter")
    expect(visit.page.get_by_role("combobox", name="y axis")).to_have_value("special_tokens.first")
    plot = visit.page.get_by_role("img", name=re.compile("^Scatter of heads: attention to special tokens: first"))
    expect(plot).to_have_accessible_description(re.compile(r"^72 heads\. Spearman correlation"))
    visit.idle()
    plot.scroll_into_view_if_needed()
    place = box(plot)

    def at(layer: int, head: int) -> tuple[float, float]:
        def share(values: np.ndarray) -> float:  # type: ignore[type-arg]
            margin = np.ptp(values) * MARGIN
            return float((values[layer, head] - values.min() + margin) / (np.ptp(values) + 2 * margin))

        across, down = place["width"] - LEFT - RIGHT, place["height"] - TOP - BOTTOM
        return place["x"] + LEFT + share(x) * across, place["y"] + TOP + (1 - share(y)) * down

    layer, head = np.unravel_index(x.argmin(), x.shape)
    visit.page.mouse.move(*at(layer, head))
    expect(visit.page.get_by_text(re.compile(f"^Head {layer}.{head}: entropy"))).to_be_visible()
    visit.page.mouse.click(*at(layer, head))
    expect(visit.page.get_by_role("heading", name=f"Head {layer}.{head}", exact=True)).to_be_visible()
    check(visit, entry="scatter-34")

    low, high = float(np.quantile(x, 0.2)), float(np.quantile(x, 0.5))
    visit.page.get_by_role("spinbutton", name="Entropy from").fill(str(low))
    visit.page.get_by_role("spinbutton", name="Entropy to").fill(str(high))
    wanted = [f"{i}.{j}" for i, j in np.argwhere((x >= low) & (x <= high))]
    visit.page.get_by_role("button", name=f"select {len(wanted)} heads").press("Enter")
    separated = r"(\+|%20)".join(wanted)
    expect(visit.page).to_have_url(re.compile(f"&heads={separated}(&|$)"))
    expect(visit.page.get_by_role("heading", name=f"{len(wanted)} heads")).to_be_visible()

    plot.scroll_into_view_if_needed()
    place = box(plot)
    corners = [(0, 0), (1, 0), (1, 1), (0, 1)]
    points = [
        (place["x"] + 2 + u * (place["width"] - 4), place["y"] + 2 + v * (place["height"] - 4)) for u, v in corners
    ]
    visit.page.mouse.move(*points[0])
    visit.page.mouse.down()
    for point in points[1:]:
        visit.page.mouse.move(*point, steps=4)
    visit.page.mouse.up()
    expect(visit.page.get_by_role("heading", name="72 heads")).to_be_visible()
    # The ranges were of another number.
    visit.page.get_by_role("combobox", name="x axis").select_option("null_share")
    expect(visit.page.get_by_role("spinbutton", name="Null share from")).to_have_value("")
    visit.page.get_by_role("combobox", name="x axis").select_option("entropy")

    visit.page.get_by_role("button", name="numbers").click()
    rows = visit.page.get_by_role("region", name="Numbers of the scatter").get_by_role("row")
    expect(rows).to_have_count(73)
    expect(rows.nth(1 + 3 * 12 + 1)).to_contain_text(f"{y[3, 1]:.3f}"[:4])
    with visit.page.expect_download() as download:
        visit.page.get_by_role("group", name="Numbers and files of the scatter").get_by_text("SVG").click()
    words = re.sub(r"<[^>]+>", " ", download.value.path().read_text())
    assert "entropy in nats, weights" in words
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        expect(plot).to_be_visible()


# scatter.test.ts.
@pytest.mark.long
def test_heads_without_a_reading(visit: Visit) -> None:
    """Left out and counted."""
    visit.open(address(text=SENTENCE, head="3.1", scatter="show", y="token_types.NOUN"))
    expect(visit.page.get_by_role("img", name=re.compile("^Scatter of heads"))).to_have_accessible_description(
        "0 heads. 72 heads without a reading left out."
    )
