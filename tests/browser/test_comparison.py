"""Two analyses side by side: another mechanism, model or text; every number against what the interface says."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, expect
from safetensors.numpy import load

from tests.browser.visit import Visit, address, another_picture, box, picture
from tests.support.extent import extent
from tests.support.server import Server

SENTENCE = "The trophy did not fit into the suitcase because it was too big."
LABEL = 74  # pixels that names take beside and above a heat map


def analysed(server: Server, **body: Any) -> str:
    """The id of an analysis as the page asks for it: through both lenses that it always reads."""
    return str(server.analyse(model="minilm", lenses=["weights", "effective"], **body)["id"])


def weights(server: Server, identity: str, layer: int, head: int) -> np.ndarray[Any, Any]:
    params = {"layer": layer, "head": head, "dtype": "float32"}
    return load(server.get(f"/analyses/{identity}/maps/weights", params=params).content)["map"][0, 0]


def number(value: float) -> str:
    return f"{value:.4f}".replace("-", "\N{MINUS SIGN}")


def compare_with(visit: Visit, label: str) -> None:
    visit.page.get_by_role("combobox", name="Compare with").select_option(label=label)


def hover(visit: Visit, image: Locator, query: int, key: int, count: int) -> None:
    """Point at a cell of a map of so many tokens."""
    place = box(image)
    side = (place["width"] - LABEL - 1) / count
    visit.page.mouse.move(place["x"] + LABEL + (key + 0.5) * side, place["y"] + LABEL + (query + 0.5) * side)


def test_another_mechanism(visit: Visit, server: Server) -> None:
    """Chosen in the bar: both maps, the numbers of the interface, the heads coloured by them; the address holds it."""
    visit.open(address(text=SENTENCE, head="3.1"))
    compare_with(visit, "Hopfield")
    second = visit.page.get_by_role("img", name=re.compile("^Hopfield .* map of head 3.1$"))
    expect(second).to_be_visible()
    visit.idle()
    another_picture(second, picture(visit.image("Heat map of head 3.1")))

    ids = [analysed(server, text=SENTENCE, mechanism={"name": name}) for name in ("softmax", "hopfield")]
    found = server.get(f"/analyses/{ids[0]}/compare/{ids[1]}", params={"lens": "weights"}).json()
    cosine = np.array(found["cosine"])
    expect(visit.page.get_by_text(re.compile(f"^Cosine of the two maps: {cosine[3, 1]:.2g}"))).to_be_visible()
    one, other = (weights(server, id_, 3, 1)[1:-1, 1:-1] for id_ in ids)
    words = (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum())
    expect(visit.page.get_by_text(re.compile(rf"without special tokens: {words:.2g}"))).to_be_visible()
    layer, head = np.unravel_index(cosine.argmin(), cosine.shape)
    visit.page.get_by_role("combobox", name="colour by").select_option(label="Cosine")
    visit.page.get_by_role("button", name=f"Open head {layer}.{head}").click()
    expect(visit.page.get_by_text(f"{layer}.{head} · {cosine.min():.2g} cosine", exact=True)).to_be_visible()
    expect(visit.image(f"Heat map of head {layer}.{head}")).to_be_visible()

    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        expect(visit.page.get_by_role("combobox", name="Compare with")).to_have_value("mechanism:hopfield")
        expect(
            visit.page.get_by_role("img", name=re.compile(f"^Hopfield .* map of head {layer}.{head}$"))
        ).to_be_visible()


# test_two_heads.py points at both and at their difference.
@pytest.mark.long
def test_difference_and_cursor(visit: Visit, server: Server) -> None:
    """Pointing at one map says the values of both; the difference is the other less the first."""
    fields = {"text": SENTENCE, "head": "3.1", "with": "mechanism", "than": "hopfield"}
    visit.open(address(**fields, compare="side"))
    second = visit.page.get_by_role("img", name=re.compile("^Hopfield .* map of head 3.1$"))
    expect(second).to_be_visible()
    maps = [
        weights(server, analysed(server, text=SENTENCE, mechanism={"name": name}), 3, 1)
        for name in ("softmax", "hopfield")
    ]
    readout = visit.page.locator("p.readout")
    hover(visit, second, 5, 2, len(maps[0]))
    expect(readout).to_contain_text(f"Softmax {number(maps[0][5, 2])}")
    expect(readout).to_contain_text(f"difference {number(maps[1][5, 2] - maps[0][5, 2])}")

    before = visit.now()
    visit.page.mouse.move(2, 2)
    visit.page.get_by_role("group", name="Compare").get_by_text("difference", exact=True).click()
    visit.painted("head", before)
    expect(visit.page.get_by_text(re.compile("^Hopfield .* \N{MINUS SIGN} Softmax$"))).to_be_visible()
    expect(second).to_be_hidden()
    hover(visit, visit.image("Heat map of head 3.1"), 5, 2, len(maps[0]))
    expect(readout).to_contain_text(f"difference {number(maps[1][5, 2] - maps[0][5, 2])}")


def test_another_text(visit: Visit, server: Server) -> None:
    """Typed below the text; words that stand for each other are one place of the difference, and light each other."""
    visit.open(address(text=SENTENCE, head="3.1"))
    compare_with(visit, "another text \N{HORIZONTAL ELLIPSIS}")
    field = visit.page.get_by_role("textbox", name="Compare with another text")
    field.fill("The old trophy did not fit into the bookcase because it was too big.")
    field.press("Enter")
    second = visit.page.get_by_role("img", name=re.compile("^“The old .* map of head 3.1$"))
    expect(second).to_be_visible()
    visit.idle()
    expect(visit.page.get_by_text(re.compile("compared word by word"))).to_be_visible()

    ids = [analysed(server, text=text) for text in (SENTENCE, field.input_value())]
    pairs = server.get(f"/analyses/{ids[0]}/compare/{ids[1]}/tokens").json()["queries"]
    place = next(place for place, pair in enumerate(pairs) if pair["other_text"] == "bookcase")
    pair = pairs[place]
    assert pair["text"] == "suitcase"
    before = visit.now()
    visit.page.get_by_role("group", name="Compare").get_by_text("difference", exact=True).click()
    visit.painted("head", before)
    one, other = (weights(server, identity, 3, 1) for identity in ids)
    expected = (
        other[np.ix_(pair["other_tokens"], pairs[1]["other_tokens"])].sum(1).mean()
        - one[np.ix_(pair["tokens"], pairs[1]["tokens"])].sum(1).mean()
    )
    hover(visit, visit.image("Heat map of head 3.1"), place, 1, len(pairs))
    expect(visit.page.locator("p.readout")).to_contain_text(f"difference {number(float(expected))}")


@pytest.mark.long
def test_too_little_in_common(visit: Visit) -> None:
    """Said, and both stand side by side instead of a difference that would say nothing."""
    visit.open(
        address(**{"text": SENTENCE, "head": "3.1", "with": "text", "than": "Few know.", "compare": "difference"})
    )
    expect(visit.page.get_by_text("The two have too few words in common")).to_be_visible()
    expect(visit.image("“Few know.” map of head 3.1")).to_be_visible()


def test_a_model_of_another_shape(visit: Visit, server: Server) -> None:
    """One head beside any head of the other, or beside the one that is most alike; other tokens are compared by words."""
    visit.open(address(text=SENTENCE, head="3.1"))
    compare_with(visit, "t5")
    pick = visit.page.get_by_role("combobox", name="head", exact=True)
    expect(pick).to_have_value("1.1")
    expect(visit.page.get_by_text("The two have different numbers of layers or heads")).to_be_visible()
    ids = [
        analysed(server, text=SENTENCE),
        server.analyse(model="t5", text=SENTENCE, lenses=["weights", "effective"])["id"],
    ]
    cosine = np.array(
        server.get(f"/analyses/{ids[0]}/compare/{ids[1]}", params={"layer": 3, "head": 1}).json()["cosine"]
    )
    pick.select_option(value="0.2")
    expect(visit.image("t5 map of head 0.2")).to_be_visible()
    expect(visit.page.get_by_text(re.compile(f"^Cosine of the two maps: {cosine[0, 2]:.2g}"))).to_be_visible()
    expect(visit.page).to_have_url(re.compile("twin=0.2"))
    layer, head = np.unravel_index(cosine.argmax(), cosine.shape)
    visit.page.get_by_role("button", name=f"Compare with head {layer}.{head}").click()
    expect(visit.image(f"t5 map of head {layer}.{head}")).to_be_visible()
    expect(pick).to_have_value(f"{layer}.{head}")


@pytest.mark.long
def test_what_cannot_be_analysed(visit: Visit) -> None:
    """The first analysis stays on screen, with the reason why there is no second one."""
    visit.network_errors_expected = True
    visit.open(
        address(**{"text": SENTENCE, "head": "3.1", "with": "model", "than": "no-such-model", "compare": "side"})
    )
    expect(visit.alert).to_contain_text("The comparison failed:")
    expect(visit.image("Heat map of head 3.1")).to_be_visible()
