"""Long texts folded to sentences: every number against the interface, and the way there and back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect
from safetensors.numpy import load

from headscope.measures.received import received_and_given, sinks_of
from tests.browser.axe import check
from tests.browser.test_head import number, said, weights
from tests.browser.visit import Visit, address, box
from tests.support.extent import extent
from tests.support.server import Server

TEXT = "The bank was steep. Dr. Li's boats lay there; nobody used them! Why?\nIt is unknown."
LABEL = 125  # pixels that the first words of sentences take beside and above a heat map
SENTENCES = ["1 The bank was steep.", "2 Dr.", "3 Li's boats lay there;…", "4 Why?", "5 It is unknown."]
STARTS = [TEXT.index(words.split(" ", 1)[1].split("…")[0]) for words in SENTENCES]


def groups_of(tokens: list[dict[str, object]], starts: list[int], sinks: tuple[int, ...] = ()) -> list[list[int]]:
    """The tokens of every row: those of a sentence, or one alone. `starts`: where sentences begin in the text."""
    found: dict[object, list[int]] = {}
    for place, token in enumerate(tokens):
        alone = token["kind"] == "special" or place in sinks
        name = ("token", place) if alone else sum(start <= int(str(token["start"])) for start in starts)
        found.setdefault(name, []).append(place)
    return list(found.values())


def folded(weights: np.ndarray, groups: list[list[int]]) -> np.ndarray:  # type: ignore[type-arg]
    return np.array([[weights[np.ix_(rows, keys)].sum(1).mean() for keys in groups] for rows in groups])


def opened(visit: Visit, count: int, rows: list[int], keys: list[int]) -> None:
    """The window, in an address of `count` tokens, is as large as the longer of both sentences, and shows both."""
    visit.page.wait_for_url(re.compile("zoom="))
    [window] = parse_qs(urlsplit(visit.page.url).fragment)["zoom"]
    left, top, size = (count * float(part) for part in window.split())
    assert size == pytest.approx(max(4, len(rows), len(keys)), abs=1e-3)
    for start, tokens in ((top, rows), (left, keys)):
        assert start - 1e-3 <= tokens[0]
        assert tokens[-1] + 1 <= start + size + 1e-3


def test_sentences_of_a_text(visits: Callable[..., Visit], server: Server) -> None:
    """Chosen by hand: map, readout, tokens and words of the page follow; what is copied and exported says the same; a cell opens, and undo folds it again."""
    visit = visits(permissions=["clipboard-read", "clipboard-write"])
    visit.open(address(text=TEXT, head="4.5", view="both"))
    visit.page.get_by_role("combobox", name="Tokens", exact=True).select_option("sentences")
    tokens = server.analyse(model="minilm", text=TEXT)["tokens"]
    groups = groups_of(tokens, STARTS)
    assert len(groups) == len(SENTENCES) + 2
    values = folded(weights(server, TEXT, 4, 5), groups)
    image = visit.image("Heat map of head 4.5")
    expect(image).to_have_accessible_description(re.compile("5 sentences and 2 single tokens, queries in rows"))
    expect(visit.page).to_have_url(re.compile("unit=sentences"))

    cells = visit.page.get_by_role("application", name="Cells of the heat map of head 4.5")
    cells.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        cells.press(key)
    expect(said(visit)).to_contain_text(f"{SENTENCES[2]} → {SENTENCES[0]}")
    expect(said(visit)).to_contain_text(f"weights {number(float(values[3, 1]))}")
    expect(visit.page.locator("button.lit")).to_have_count(len(groups[1]) + len(groups[3]))
    # Every token of a key's sentence has the sum.
    expect(visit.tokens.nth(groups[1][0])).to_have_attribute("title", re.compile(number(float(values[3, 1]))))
    expect(visit.page.get_by_role("region", name="In words")).to_contain_text(f"“{SENTENCES[2]}”")
    check(visit, narrow=False, entry="map-sentences")

    visit.page.get_by_role("button", name="copy", exact=True).click()
    menu = visit.page.get_by_role("group", name="Copy")

    def copied(what: str, done: str) -> str:
        menu.get_by_role("button", name=f"Copy {what}").press("Enter")
        expect(menu.get_by_role("status")).to_have_text(f"{done} copied.")
        return str(visit.page.evaluate("navigator.clipboard.readText()"))

    names: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    exec(copied("Python", "Script"), names)
    np.testing.assert_allclose(names["attention"], values, atol=1e-5)
    path = f"{sys.executable.rsplit('/', 1)[0]}:/usr/bin:/bin"
    answer = subprocess.run(
        ["bash", "-c", copied("curl", "Command")], capture_output=True, check=True, env={"PATH": path}
    )
    np.testing.assert_allclose(json.loads(answer.stdout)["map"][0][0], values, atol=1e-5)
    assert "Folded to sentences, keys summed, queries averaged." in copied("citation", "Citation")
    link = copied("link", "Link")
    assert "unit=sentences" in link
    visit.page.keyboard.press("Escape")
    visit.page.get_by_role("button", name="download").click()
    with visit.page.expect_download() as download:
        visit.page.get_by_role("button", name="This head as SVG").click()
    picture = Path(download.value.path()).read_text()
    assert "Folded to sentences" in picture
    assert all(word in picture for word in ("2 Dr.", "4 Why?"))

    cells.focus()
    cells.press("Enter")
    expect(visit.page.get_by_role("button", name="whole map")).to_be_visible()
    expect(visit.page.get_by_role("combobox", name="Tokens", exact=True)).to_have_value("pieces")
    opened(visit, len(tokens), groups[3], groups[1])
    visit.page.keyboard.press("Control+z")
    expect(visit.page.get_by_role("combobox", name="Tokens", exact=True)).to_have_value("sentences")
    expect(visit.page.get_by_role("button", name="whole map")).to_have_count(0)
    place = box(image)
    side = (place["width"] - LABEL - 1) / len(groups)
    visit.page.mouse.dblclick(place["x"] + LABEL + 1.5 * side, place["y"] + LABEL + 5.5 * side)
    expect(visit.page.get_by_role("combobox", name="Tokens", exact=True)).to_have_value("pieces")
    opened(visit, len(tokens), groups[5], groups[1])
    if extent(True, False):  # test_address.py opens a link
        visit.page.goto("about:blank")
        visit.page.goto(link)
        expect(visit.image("Heat map of head 4.5")).to_have_accessible_description(re.compile("5 sentences"))


@pytest.mark.long
def test_tokens_that_are_left_out_leave_their_sentences(visit: Visit, server: Server) -> None:
    """A sink in the middle of a sentence: grey, it is a column of its own; left out, the sentence is summed without it, in the readout too."""
    text, layer, head = "One of them, she said, was late. They had, as we know, three boats. Why?", 5, 6
    tokens, map_ = server.analyse(model="minilm", text=text)["tokens"], weights(server, text, layer, head)
    ordinary = np.array([token["kind"] != "special" for token in tokens])
    found = sinks_of(*received_and_given(map_), None)
    sinks = tuple(int(place) for place in np.flatnonzero(found & ordinary))
    assert [tokens[sink]["text"] for sink in sinks] == ["boats"]
    groups = groups_of(tokens, [0, text.index("They"), text.index("Why")], sinks)
    values = folded(map_, groups)
    visit.open(address(text=text, head=f"{layer}.{head}", unit="sentences", special="mark", view="map"))
    image = visit.image(f"Heat map of head {layer}.{head}")
    expect(image).to_have_accessible_description(re.compile("3 sentences and 3 single tokens, "))
    visit.page.get_by_label("Special tokens and sinks").select_option("hide")
    expect(image).to_have_accessible_description(re.compile("3 sentences, queries in rows"))
    place = [at for at, group in enumerate(groups) if ordinary[group[0]] and group[0] not in sinks]
    cells = visit.page.get_by_role("application", name=f"Cells of the heat map of head {layer}.{head}")
    cells.focus()
    cells.press("ArrowRight")
    expect(said(visit)).to_contain_text("1 One of them, she said,… → 2 They had, as we know,…")
    expect(said(visit)).to_contain_text(f"weights {number(float(values[place[0], place[1]]))}")
    # A rectangle over two sentences does not count what is between them and left out.
    cells.press("Shift+ArrowRight")
    cells.blur()
    both = values[place[0], place[1]] + values[place[0], place[2]]
    expect(said(visit)).to_contain_text(f"weights {number(float(both))}")


@pytest.mark.long
def test_nothing_is_ahead_in_a_causal_model(visit: Visit, server: Server) -> None:
    """The triangle stays one, through the first sentence of a decoder to the last; a text of one sentence is not folded."""
    text = "One two. Three four! Five."
    done = server.analyse(model="writer", text=text)
    map_ = load(server.get(f"/analyses/{done['id']}/maps/weights?layer=1&head=2").content)["map"][0, 0]
    values = folded(map_, groups_of(done["tokens"], [0, text.index("Three"), text.index("Five")]))
    assert values.shape == (3, 3)
    visit.open(address(model="writer", text=text, head="1.2", unit="sentences", view="map"))
    cells = visit.page.get_by_role("application", name="Cells of the heat map of head 1.2")
    cells.focus()
    cells.press("End")
    expect(said(visit)).to_contain_text("weights 0")
    cells.press("ArrowDown")
    cells.press("ArrowLeft")
    expect(said(visit)).to_contain_text(f"2 Three four! → 2 Three four! weights {number(float(values[1, 1]))}")
    visit.submit("One two, three four")
    expect(visit.page.get_by_role("option", name="sentences")).to_have_count(0)
    # Later tokens are not darker because fewer queries see them.
    done = server.analyse(model="writer", text="One two, three four")
    map_ = load(server.get(f"/analyses/{done['id']}/maps/weights?layer=1&head=2").content)["map"][0, 0]
    expect(visit.tokens).to_have_count(len(map_))
    for place, token in enumerate(visit.tokens.all()):
        expect(token).to_have_attribute("title", re.compile(r"mean attention from itself and later tokens: \S+$"))
        mean = float((token.get_attribute("title") or "").split(": ")[-1])
        assert mean == pytest.approx(map_[place:, place].mean(), rel=0.06), place
    expect(visit.image("Heat map of head 1.2")).to_have_accessible_description(
        re.compile(r"\d+ tokens, queries in rows")
    )


@pytest.mark.long
def test_two_texts_beside_each_other(visit: Visit, server: Server) -> None:
    """The readout has the cell of the second map, too, in which the sentence has other tokens."""
    one, other = "One two three. Four five six.", "One two three. Four very big six."
    tokens = [server.analyse(model="minilm", text=text)["tokens"] for text in (one, other)]
    first, second = (
        folded(weights(server, text, 4, 5), groups_of(listed, [0, text.index("Four")]))
        for text, listed in zip((one, other), tokens, strict=True)
    )
    visit.open(
        address(text=one, **{"with": "text"}, than=other, compare="side", head="4.5", unit="sentences", view="map")
    )
    cells = visit.page.get_by_role("application", name=re.compile("^Cells of the heat map of head 4.5"))
    cells.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        cells.press(key)
    values = [number(float(maps[1, 2])) for maps in (first, second)]
    expect(said(visit)).to_contain_text(re.compile(rf"1 One two three\. → 2 Four five six\..*{values[0]}.*{values[1]}"))
