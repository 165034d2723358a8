"""The main job: type a sentence, see every head, open one, see what it does."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect
from safetensors.numpy import load

from tests.browser.visit import Visit, address, another_picture, box, count_held, picture
from tests.support.extent import extent
from tests.support.server import Server, eventually

SENTENCE = "The trophy did not fit into the suitcase because it was too big."
# Longer than the 32 dimensions of a head of MiniLM, so that lenses differ.
LONG = "The boats lay by the river bank while the bank in town kept the money. " * 3
LABEL = 74  # pixels that names take beside and above a heat map


def number(value: float) -> str:
    """As the page writes a weight."""
    return f"{value:.4f}".replace("-", "\N{MINUS SIGN}")


def point(page: Page, name: str, across: float, down: float) -> None:
    """Move the hand to a place within an image, in fractions of its sides."""
    place = box(page.get_by_role("img", name=name, exact=True))
    page.mouse.move(place["x"] + across * place["width"], place["y"] + down * place["height"])


def test_opens_on_a_picture(visit: Visit) -> None:
    """Nothing has to be done to see something: an example is analysed, a head is open, the numbers are in words."""
    visit.open().painted("graph")
    expect(visit.page.get_by_role("gridcell")).to_have_count(72)
    for name in ("Heat map of head 2.9", "Connections of head 2.9"):
        assert picture(visit.image(name))[0] > 10
    expect(visit.page.get_by_text("of this map has no effect on the head’s output.")).to_be_visible()
    visit.holds("document.documentElement.scrollHeight <= innerHeight")
    # Grid, tokens and open head take two thirds of 1440 by 900, together and without scrolling.
    visit.holds(
        """() => {
          const boxes = ['heads-title', 'text-title', 'head-title'].map((id) => document.querySelector(`section[aria-labelledby=${id}]`).getBoundingClientRect())
          const area = boxes.reduce((sum, { width, height }) => sum + width * height, 0)
          return area > 0.6 * 1440 * 900 && boxes.every(({ bottom }) => bottom <= 900)
        }"""
    )


def test_a_reader_quicker_than_the_page(visit: Visit) -> None:
    """What is sent off before the page knows the models is analysed once it does; nothing half-made is asked for."""
    held: list[Route] = []
    visit.page.route("**/api/v1/models?*", lambda route: held.append(route))
    visit.page.goto(visit.root)
    visit.text.fill("Snow lay on the mat.")
    visit.text.press("Enter")
    eventually(lambda: count_held(visit.page, held), "the question for the models")
    for route in held:
        route.continue_()
    visit.painted("head")
    visit.shows("Snow", "lay", "on", "the", "mat", ".")


def test_sentence_to_head(visit: Visit, server: Server) -> None:
    """Type, Enter, 72 heads; a click opens one; pointing at it lights and says exactly what the interface says."""
    visit.open()
    visit.submit(SENTENCE)
    visit.shows(*"The trophy did not fit into the suitcase because it was too big .".split())
    expect(visit.page.get_by_role("grid", name="Heads").get_by_role("gridcell")).to_have_count(72)
    before = visit.now()
    visit.head(4, 5).click()
    visit.painted("head", before)
    visit.painted("graph", before)
    expect(visit.image("Heat map of head 4.5")).to_be_visible()
    expect(visit.image("Connections of head 4.5")).to_be_visible()
    expect(visit.head(4, 5)).to_have_attribute("aria-selected", "true")

    before = visit.now()
    point(visit.page, "Connections of head 4.5", 0.1, 0.5)
    visit.painted("hover", before)
    expect(visit.page.locator("button.lit")).to_have_count(1)

    analysis = server.analyse(model="minilm", text=SENTENCE)
    answer = server.get(f"/analyses/{analysis['id']}/maps/weights", params={"layer": 4, "head": 5, "dtype": "float32"})
    weights = load(answer.content)["map"][0, 0]
    place = box(visit.image("Heat map of head 4.5"))
    n = len(analysis["tokens"])
    for query, key in [(0, 0), (2, 9), (10, 2), (n - 1, n - 1)]:
        cell = (place["width"] - LABEL - 1) / n
        visit.page.mouse.move(place["x"] + LABEL + (key + 0.5) * cell, place["y"] + LABEL + (query + 0.5) * cell)
        names = [analysis["tokens"][i]["text"] for i in (query, key)]
        expect(visit.page.get_by_text(f"{names[0]} → {names[1]}", exact=True)).to_be_visible()
        assert weights[query, key] > 1e-4
        expect(visit.page.get_by_text(f"weights {number(float(weights[query, key]))}", exact=True)).to_be_visible()


def test_lenses_and_difference(visit: Visit, server: Server) -> None:
    """Each lens paints another picture; the difference is that of the two; side by side shows both."""
    visit.open(address(text=LONG.strip(), head="2.9"))
    image = visit.image("Heat map of head 2.9")
    seen = [picture(image)]
    visit.lens("effective")
    seen.append(another_picture(image, *seen))
    visit.page.get_by_role("group", name="Compare").get_by_text("difference", exact=True).click()
    expect(visit.page.get_by_text("Weights \N{MINUS SIGN} effective attention", exact=True)).to_be_visible()
    seen.append(another_picture(image, *seen))
    assert all(colours > 20 for colours, _ in seen)
    visit.page.get_by_role("group", name="Compare").get_by_text("side by side", exact=True).click()
    expect(visit.image("Weights map of head 2.9")).to_be_visible()

    identity = server.analyse(model="minilm", text=LONG.strip())["id"]
    maps = {
        lens: load(server.get(f"/analyses/{identity}/maps/{lens}", params={"layer": 2, "head": 9}).content)["map"]
        for lens in ("weights", "effective")
    }
    assert np.abs(maps["weights"] - maps["effective"]).max() > 0.1


def test_short_text_is_identical(visit: Visit) -> None:
    """A text that fits into a head's dimensions has nothing to lose, and the page says so beside the map."""
    visit.open(address(text=SENTENCE, lens="effective"))
    expect(visit.page.get_by_role("main").get_by_text("Identical to the weights").first).to_be_visible()


@pytest.mark.long
def test_views(visit: Visit) -> None:
    visit.open()
    for view in ("heat map", "graph", "both"):
        visit.page.get_by_role("group", name="View").get_by_text(view, exact=True).click()
        expect(visit.image("Heat map of head 2.9")).to_be_visible(visible=view != "graph")
        expect(visit.image("Connections of head 2.9")).to_be_visible(visible=view != "heat map")


def test_terms_are_explained(visit: Visit) -> None:
    """Behind each question mark stands what the number means, for hand, keyboard and screen reader."""
    visit.open()
    ask = visit.page.get_by_role("button", name="What is entropy?")
    said = visit.page.get_by_text("How widely a query spreads its attention")
    expect(said).to_be_hidden()
    ask.focus()
    ask.press("Enter")
    expect(said).to_be_visible()
    expect(ask).to_have_attribute("aria-expanded", "true")


def test_every_example_works(visit: Visit) -> None:
    visit.open()
    menu = visit.page.get_by_role("button", name="Examples", exact=True)
    examples = visit.page.get_by_role("navigation", name="Examples").get_by_role("button")
    menu.click()
    for index in range(0, examples.count(), extent(1, 4)):
        before = visit.now()
        if index > 0:
            menu.click()
        examples.nth(index).click()
        expect(examples).to_have_count(0)
        visit.settled(before)
    expect(visit.alert).to_have_count(0)
