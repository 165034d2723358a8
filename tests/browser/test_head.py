"""The open head: zoom, rectangles, words, colours, layouts of the graph; every number against what the interface says."""

from __future__ import annotations

import base64
import io
import re
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, expect
from safetensors.numpy import load

from tests.browser.axe import check
from tests.browser.visit import Visit, address, another_picture, box, comes_to, picture
from tests.support.server import Server, eventually

SENTENCE = "The trophy did not fit into the suitcase because it was too big."
# Words that MiniLM reads in pieces.
PIECES = "Unbelievable counterexamples embarrassed the crystallographers."
LABEL = 74  # pixels that names take beside and above a heat map
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Where the first Hebrew letter of a sentence is on screen, and the digit and the percent sign after it.
AFTER_HEBREW = r"""(line) => {
  const words = document.createTreeWalker(line, NodeFilter.SHOW_TEXT)
  while (!/[\u0590-\u05ff]/.test(words.nextNode().data));
  const text = words.currentNode
  const range = document.createRange()
  let at = 0
  return [/[\u0590-\u05ff]/, /\d/, /%/].map((sign) => {
    at += text.data.slice(at).search(sign)
    range.setStart(text, at)
    range.setEnd(text, at + 1)
    return range.getBoundingClientRect().left
  })
}"""
CANVASES = "(element) => [...element.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL()).join()"


def weights(server: Server, text: str, layer: int, head: int, **query: str) -> np.ndarray[Any, Any]:
    """The map of one head as the interface has it, [Q, K]."""
    params = {"layer": str(layer), "head": str(head), "dtype": "float32", **query}
    id_ = server.analyse(model="minilm", text=text)["id"]
    return load(server.get(f"/analyses/{id_}/maps/weights", params=params).content)["map"][0, 0]


def number(value: float) -> str:
    return f"{value:.4f}".replace("-", "\N{MINUS SIGN}")


def cell(visit: Visit, query: int, key: int, count: int) -> tuple[float, float]:
    """Where the middle of a cell of the whole map is on screen."""
    place = box(visit.page.get_by_role("img", name=re.compile("^Heat map")))
    side = (place["width"] - LABEL - 1) / count
    return place["x"] + LABEL + (key + 0.5) * side, place["y"] + LABEL + (query + 0.5) * side


def drag(visit: Visit, start: tuple[float, float], end: tuple[float, float]) -> None:
    visit.page.mouse.move(*start)
    visit.page.mouse.down()
    visit.page.mouse.move(*end, steps=4)
    visit.page.mouse.up()
    visit.page.mouse.move(2, 2)


def said(visit: Visit) -> Locator:
    """The line of values below the head."""
    return visit.page.locator("p.readout")


def connected(visit: Visit) -> Locator:
    """The line that says how many curves the graph has."""
    return visit.page.get_by_text(re.compile(r"^\d+ connections? "), exact=False).first


def test_zoom_to_cells_by_keyboard(visit: Visit, server: Server) -> None:
    """Plus zooms until values stand in the cells, arrows walk them and say the exact value, 0 shows the whole map."""
    visit.open(address(text=SENTENCE, head="4.5", view="map"))
    image = visit.image("Heat map of head 4.5")
    whole = picture(image)
    cells = visit.page.get_by_role("application", name="Cells of the heat map of head 4.5")
    cells.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "+", "+"):
        cells.press(key)
    another_picture(image, whole)
    value = weights(server, SENTENCE, 4, 5)[2, 1]
    expect(said(visit)).to_contain_text(f"weights {number(float(value))}")
    expect(said(visit)).to_contain_text("exactly")
    exact = float(re.search(r"exactly ([\d.e·⁻]+)", said(visit).text_content() or "")[1])  # type: ignore[index]
    assert np.float32(exact) == value
    expect(visit.page.get_by_role("button", name="whole map")).to_be_visible()
    cells.press("0")
    comes_to(lambda: picture(image), whole)
    expect(visit.page.get_by_role("button", name="whole map")).to_have_count(0)


# words.test.ts writes small numbers; exact values are those of the first test.
@pytest.mark.long
def test_small_values_are_powers_of_ten(visit: Visit, server: Server) -> None:
    """The smallest of all weights has its power as raised digits, in the readout and the tip, and is exact."""
    id_ = server.analyse(model="minilm", text=SENTENCE)["id"]
    whole = load(server.get(f"/analyses/{id_}/maps/weights").content)["map"]
    layer, head, query, key = np.unravel_index(np.where(whole > 0, whole, 1).argmin(), whole.shape)
    value = whole[layer, head, query, key]
    assert value < 1e-4
    visit.open(address(text=SENTENCE, head=f"{layer}.{head}", view="map"))
    visit.idle()
    picture(
        visit.image(f"Heat map of head {layer}.{head}")
    )  # once it stands still: a map that is drawn again has no tip before the next move
    visit.page.mouse.move(*cell(visit, int(query), int(key), len(whole[0, 0])))
    mantissa, power = f"{value:.0e}".split("e")
    raised = str(int(power)).translate(RAISED)
    short = f"10{raised}" if mantissa == "1" else f"{mantissa}·10{raised}"
    expect(said(visit)).to_contain_text(f"weights {short}")
    expect(visit.page.locator(".tip")).to_contain_text(f"value{short}")
    exact, last = re.findall(r"exactly ([\d.]+)·10(\S+)$", said(visit).inner_text())[0]
    assert last == raised
    assert np.float32(f"{exact}e{power}") == value


# names.test.ts isolates names.
@pytest.mark.long
def test_right_to_left_words_stay_in_place(visit: Visit, server: Server) -> None:
    """A Hebrew letter in a sentence is before the percentage that follows it, which is not turned around."""
    text = "A letter \u05dc \u05dc \u05dc \u05dc \u05dc \u05dc"
    analysis = server.analyse(model="minilm", text=text)
    hebrew = [at for at, token in enumerate(analysis["tokens"]) if token["text"] == "\u05dc"]
    whole = load(server.get(f"/analyses/{analysis['id']}/maps/weights").content)["map"]
    shares = whole[..., hebrew].sum(-1).mean(-1)
    layer, head = np.unravel_index(shares.argmax(), shares.shape)
    visit.open(address(text=text, head=f"{layer}.{head}"))
    sentence = visit.page.get_by_text(re.compile("^Looks most at"))
    expect(sentence).to_contain_text("\u05dc")
    letter, digit, sign = sentence.evaluate(AFTER_HEBREW)
    assert letter < digit < sign


def test_rectangle_selects_everywhere(visit: Visit, server: Server) -> None:
    """What is drawn on the map is lit in the text, and its weight is the sum over keys and the mean over queries."""
    visit.open(address(text=SENTENCE, head="4.5"))
    count = visit.tokens.count()
    drag(visit, cell(visit, 3, 5, count), cell(visit, 6, 8, count))
    lit = visit.page.locator("button.lit")
    expect(lit).to_have_count(6)  # queries 3 to 6 and keys 5 to 8
    block = weights(server, SENTENCE, 4, 5)[3:7, 5:9]
    expect(said(visit)).to_contain_text("4 tokens → 4 tokens")
    expect(said(visit)).to_contain_text(f"weights {number(float(block.sum(1).mean()))}")
    visit.page.keyboard.press("Escape")
    expect(lit).to_have_count(0)


def test_text_and_graph_select_in_the_map(visit: Visit, server: Server) -> None:
    """Dragging over words, or along a column of the graph, selects rows of the map."""
    visit.open(address(text=SENTENCE, head="4.5"))
    visit.painted("graph")
    rows = weights(server, SENTENCE, 4, 5)
    start, end = (box(visit.tokens.nth(token)) for token in (2, 4))
    drag(visit, (start["x"] + 5, start["y"] + 5), (end["x"] + 5, end["y"] + 5))
    top = float(rows[2:5].mean(0).max())
    expect(said(visit)).to_contain_text("trophy + did")
    expect(said(visit)).to_contain_text(number(top))
    visit.page.keyboard.press("Escape")
    graph = box(visit.image("Connections of head 4.5"))
    pitch = (graph["height"] - LABEL) / visit.tokens.count()
    x, y = graph["x"] + 20, graph["y"] + LABEL
    drag(visit, (x, y + 1.5 * pitch), (x, y + 2.5 * pitch))
    expect(said(visit)).to_contain_text("The + trophy →")
    expect(said(visit)).to_contain_text(number(float(rows[1:3].mean(0).max())))


# test_folding.py has the numbers of sentences, connections of words are below, and units.test.ts has both.
@pytest.mark.long
def test_words_are_those_of_the_interface(visit: Visit, server: Server) -> None:
    """Pieces of a word together: as many rows as words, and the values that `by=word` gives."""
    visit.open(address(text=PIECES, head="4.5"))
    visit.page.get_by_role("combobox", name="Tokens", exact=True).select_option("words")
    grouped = weights(server, PIECES, 4, 5, by="word")
    assert grouped.shape[0] < visit.tokens.count()
    expect(visit.page.get_by_text(re.compile(f"{grouped.shape[0]} words, queries in rows"))).to_be_attached()
    visit.page.mouse.move(*cell(visit, 1, 2, grouped.shape[0]))
    expect(said(visit)).to_contain_text("Unbelievable → counterexamples")
    expect(said(visit)).to_contain_text(f"weights {number(float(grouped[1, 2]))}")
    expect(visit.page).to_have_url(re.compile("unit=words"))


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        pytest.param({"rule": "mass", "mass": "0.7"}, {"rule": "mass", "mass": "0.7"}, marks=pytest.mark.long),
        pytest.param({"rule": "top-k", "k": "2"}, {"rule": "top-k", "k": "2"}, marks=pytest.mark.long),
        pytest.param({"rule": "value", "value": "0.2"}, {"rule": "value", "value": "0.2"}, marks=pytest.mark.long),
        ({"rule": "mass", "mass": "0.7", "unit": "words"}, {"rule": "mass", "mass": "0.7", "by": "word"}),
    ],
    ids=["mass", "top-k", "value", "words"],
)
def test_connections_are_those_of_the_interface(
    visit: Visit, server: Server, rule: dict[str, str], asked: dict[str, str]
) -> None:
    visit.open(address(text=PIECES, head="2.9", **rule)).painted("graph")
    params = {"layer": "2", "head": "9", **asked}
    id_ = server.analyse(model="minilm", text=PIECES)["id"]
    total = server.get(f"/analyses/{id_}/edges/weights", params=params).json()["total"]
    expect(connected(visit)).to_have_text(re.compile(rf"^{total} connections? "))


def test_layouts_of_the_graph(visit: Visit) -> None:
    """Columns, rows, arcs: each another picture of the same connections; special tokens can be grey or hidden; the address keeps it."""
    visit.open(address(text=SENTENCE, head="2.9")).painted("graph")
    image = visit.image("Connections of head 2.9")
    seen, count = [picture(image)], (connected(visit).text_content() or "").split()[0]
    # The strongest curves are in full colour, the weakest can be seen; a picture for print has the curves of the screen.
    visit.page.get_by_role("button", name="download").click()
    with visit.page.expect_download() as download:
        visit.page.get_by_role("button", name="This head as SVG").click()
    curves = re.findall(r'<path [^>]*fill="none"[^>]*>', download.value.path().read_text())
    shades = [float((re.findall(r' opacity="([^"]+)"', curve) or [1])[0]) for curve in curves]
    assert max(shades) > 0.9
    assert min(shades) > 0.2
    for layout in ("rows", "arcs"):
        visit.page.get_by_label("Layout of the graph").select_option(layout)
        seen.append(another_picture(image, *seen))
        expect(connected(visit)).to_have_text(re.compile(f"^{count} connections? "))
    for special in ("mark", "hide"):
        visit.page.get_by_label("Special tokens and sinks").select_option(special)
        seen.append(another_picture(image, *seen))
    visit.page.wait_for_url(re.compile("graph=arcs.*special=hide|special=hide.*graph=arcs"))
    before = visit.now()
    visit.page.get_by_role("toolbar", name="Tokens").get_by_text("trophy").hover()
    visit.painted("hover", before)


# graph-geometry.test.ts tells wide signs.
@pytest.mark.long
def test_wide_signs_stand_in_rows(visit: Visit) -> None:
    """A Japanese text is read from left to right without being asked for."""
    visit.open(address(text="日本の山と大きい川。", head="2.9")).painted("graph")
    expect(visit.page.get_by_label("Layout of the graph")).to_have_value("rows")


# The test below has the ends of all ranges but that of a row.
@pytest.mark.long
def test_colours_span_what_is_chosen(visit: Visit, server: Server) -> None:
    """This head, each row, or all heads: other colours, other numbers on the scale, and the largest of all heads is that of the grid."""
    visit.open(address(text=SENTENCE, head="2.9", view="map"))
    image = visit.image("Heat map of head 2.9")
    seen = [picture(image)]
    span = visit.page.get_by_label("Colour range")
    for choice in ("row", "all"):
        span.select_option(choice)
        seen.append(another_picture(image, *seen))
    id_ = server.analyse(model="minilm", text=SENTENCE)["id"]
    every = load(server.get(f"/analyses/{id_}/maps/weights").content)["map"]
    largest = float(every.max())
    expect(span.locator("xpath=ancestor::figure")).to_contain_text(f"{float(f'{largest:.2g}'):g}")


def test_special_tokens_and_sinks_are_out_of_the_way(visit: Visit, server: Server) -> None:
    """Grey or left out, they count for no colour of map and grid; what is visible can have all colours; the readout counts their keys no more."""
    id_ = server.analyse(model="minilm", text=SENTENCE)["id"]
    whole = np.abs(load(server.get(f"/analyses/{id_}/maps/weights").content)["map"])
    grid = load(server.get(f"/analyses/{id_}/grid/weights", params={"without": "both"}).content)
    one, gone = whole[2, 9], grid["without"][2, 9].astype(bool)
    n, kept = len(one), np.flatnonzero(~gone)
    assert 2 <= gone.sum() <= 4
    visit.open(address(text=SENTENCE, head="2.9")).painted("graph")
    image, heads = visit.image("Heat map of head 2.9"), visit.page.get_by_role("grid", name="Heads").locator("xpath=..")
    figure = visit.page.get_by_role("figure").filter(has=visit.page.get_by_label("Colour range"))

    def reaches(largest: float) -> None:
        expect(figure.locator(".ticks .last")).to_have_text(f"{float(f'{largest:.2g}'):g}")

    reaches(one.max())
    seen, seen_heads = [picture(image)], [picture(heads)]
    choice = visit.page.get_by_label("Special tokens and sinks")
    for special, largest in (("mark", one[:, kept].max()), ("hide", one[np.ix_(kept, kept)].max())):
        choice.select_option(special)
        reaches(largest)
        seen.append(another_picture(image, *seen))
        if special == "mark":
            seen_heads.append(another_picture(heads, *seen_heads))
    expect(image).to_have_accessible_description(re.compile(f"{len(kept)} tokens.*Without special tokens and sinks"))
    check(visit, entry="map-sentences")
    figure.get_by_label("Colour range").select_option("all")
    reaches(max(np.delete(whole[at], np.flatnonzero(grid["without"][at]), axis=1).max() for at in np.ndindex(6, 12)))
    # A rectangle over everything: its sums are those of the tokens that are there.
    cells = visit.page.get_by_role("application")
    cells.focus()
    cells.press("Home")
    cells.press("Shift+End")
    cells.blur()
    value = one[kept[0], kept].sum()
    expect(visit.page.locator(".readout")).to_contain_text(f"{value:.4f}")
    cells.focus()
    cells.press("+")
    expect(visit.page).to_have_url(re.compile("zoom="))
    figure.get_by_label("Colour range").select_option("visible")
    left, top, size = (float(part) for part in re.findall(r"zoom=([^&]*)", visit.page.url)[0].split("+"))
    rows, columns = (slice(floor(at * len(kept) + 1e-6), ceil((at + size) * len(kept) - 1e-6)) for at in (top, left))
    reaches(one[np.ix_(kept, kept)][rows, columns].max())
    assert n == len(kept) + gone.sum()


# graph-window.test.ts has the window, and its tokens.
@pytest.mark.long
def test_the_graph_follows(visit: Visit) -> None:
    """What is pinned in a link or pointed at in the map is scrolled into view in graph and text; of a zoomed map it shows the same tokens."""
    text = " ".join(
        f"Here is sentence {name} of the long text."
        for name in ("one", "two", "three", "four", "five", "six", "seven", "eight")
    )
    visit.open(address(text=text, head="2.9", view="both", graph="columns", pins="q70 k2")).painted("graph")
    note = visit.page.get_by_text(re.compile(r"^Tokens .* of 74"))

    def seen() -> tuple[int, int]:
        first, last = re.findall(r"Tokens (\d+) to (\d+)", note.inner_text())[0]
        return int(first), int(last)

    comes_to(lambda: seen()[0] <= 70 <= seen()[1], True)
    expect(said(visit)).to_contain_text("long\u2087\u2080")
    expect(visit.tokens.nth(70)).to_be_in_viewport()
    cells = visit.page.get_by_role("application")
    cells.focus()
    cells.press("Home")
    cells.press("ArrowDown")
    comes_to(lambda: seen()[0] <= 1, True)
    for _ in range(2):
        cells.press("+")
    expect(visit.page).to_have_url(re.compile(r"zoom=0\.[0-9]+\+0\.[0-9]+\+0\.25"))
    left, top, _ = (float(part) for part in re.findall(r"zoom=([^&]*)", visit.page.url)[0].split("+"))
    queries, keys = (f"{floor(at * 74 + 1e-6)} to {ceil((at + 0.25) * 74 - 1e-6) - 1}" for at in (top, left))
    expect(visit.page.get_by_text(f"Queries {queries} and keys {keys} of 74", exact=True)).to_be_visible()
    expect(visit.tokens.nth(70)).to_have_attribute("title", re.compile("^long\u2087\u2080, attention from “Here”.*: 0"))


# test_images.py has the overlay and patches.
@pytest.mark.long
def test_patches_over_their_image(visit: Visit, server: Server) -> None:
    """Hovering a patch of an image shows where it looks, with [CLS] beside the image."""
    drawn = io.BytesIO()
    Image.fromarray(np.linspace(0, 255, 32 * 32 * 3).reshape(32, 32, 3).astype(np.uint8)).save(drawn, "PNG")
    made = server.post(
        {
            "model": "vit",
            "image": base64.b64encode(drawn.getvalue()).decode(),
            "lenses": ["weights", "effective"],
            "measures": ["entropy"],
        },
        headers={"Prefer": "wait=30"},
    ).json()
    assert made["status"] == "done"
    visit.open(address(model="vit", image=made["image"], head="1.1"))
    image = visit.image("Image under head 1.1")
    visit.painted("graph")
    place = box(image)
    still = image.evaluate(CANVASES)
    visit.page.mouse.move(place["x"] + 0.6 * place["width"], place["y"] + 0.1 * place["height"])
    expect(visit.page.get_by_text("attention from patch 0,2", exact=True)).to_be_visible()
    eventually(lambda: image.evaluate(CANVASES) != still, "another picture over the image")
    params = {"layer": "1", "head": "1"}
    row = load(server.get(f"/analyses/{made['id']}/maps/weights", params=params).content)["map"][0, 0][3]
    share = f"{100 * row[0]:.1f}" if row[0] < 0.1 else f"{100 * row[0]:.0f}"
    expect(visit.page.get_by_text(f"1 token without a patch: {share}\N{NO-BREAK SPACE}% of the weight")).to_be_visible()


def test_the_head_under_the_hand_is_fetched(visit: Visit) -> None:
    """Hovering over a head fetches its map before the click, and nothing moves."""
    visit.open()
    with visit.page.expect_response(re.compile(r"/maps/weights\?layer=0&head=7")):
        visit.head(0, 7).hover()
    expect(visit.image("Heat map of head 2.9")).to_be_visible()
