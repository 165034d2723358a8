"""A model of 2,304 heads, and a text of 2,048 tokens: only what is on screen is drawn, and everything else is reached by keyboard, scrolling and a range of layers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Route, expect
from safetensors.numpy import load

from tests.browser.visit import Visit, address, another_picture, box, comes_to, count_held, picture
from tests.support.extent import extent
from tests.support.server import Server

MOST_NODES = 3000
MOST_BYTES = 400_000
TEXT = "A text of some twenty tokens, so that its thumbnails have fewer cells than the map of a head has entries."
# Bytes of what the first picture of the heads waited for.
BYTES = """() => {
  const [from, to] = ['submit', 'grid'].map((name) => performance.getEntriesByName(`headscope:${name}`)[0].startTime)
  const needed = performance.getEntriesByType('resource').filter(({ startTime, responseEnd }) => startTime >= from && responseEnd <= to)
  return needed.reduce((sum, { transferSize }) => sum + transferSize, 0)
}"""
# Colours of the canvas below an element; none if the canvas does not reach there.
BELOW = """(cell) => {
  const canvas = cell.closest('.body').querySelector('canvas')
  const [at, from] = [cell.getBoundingClientRect(), canvas.getBoundingClientRect()]
  const ratio = canvas.width / from.width
  const [left, top, side] = [at.left - from.left, at.top - from.top, at.width].map((length) => Math.round(length * ratio))
  const copy = new OffscreenCanvas(side, side).getContext('2d', { willReadFrequently: true })
  copy.drawImage(canvas, left, top, side, side, 0, 0, side, side)
  const pixels = new Uint32Array(copy.getImageData(0, 0, side, side).data.buffer)
  return pixels.every((pixel) => pixel >>> 24 === 255) ? new Set(pixels).size : 0
}"""
# Requests for whole maps, and elements of tokens, when the heads are painted first; and how many tokens are the first to be built.
FIRST = """(() => {
  const mark = performance.mark.bind(performance)
  performance.mark = (name) => {
    if (name === 'headscope:grid') window.first ??= [
      performance.getEntriesByType('resource').filter(({ name }) => name.includes('/maps/')).length,
      document.querySelectorAll('[data-token]').length,
    ]
    return mark(name)
  }
  new MutationObserver((_, observer) => {
    window.batch = document.querySelectorAll('[data-token]').length
    if (window.batch) observer.disconnect()
  }).observe(document, { childList: true, subtree: true })
})()"""
# Addresses of the maps that were read.
MAPS = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/maps/')).map(({ name }) => name)"
# Whether nothing covers the middle of an element and no edge cuts it off.
SEEN = """(cell) => {
  const { left, top, width, height } = cell.getBoundingClientRect()
  return [0.1, 0.5, 0.9].every((part) => document.elementFromPoint(left + part * width, top + part * height) === cell)
}"""


def test_a_grid_of_many_heads(visits: Callable[..., Visit]) -> None:
    visit = visits(new=True).open(address(model="large", text=TEXT, head="2.9"))
    grid = visit.page.get_by_role("grid", name="Heads")
    expect(grid).to_have_attribute("aria-rowcount", "48")
    expect(grid).to_have_attribute("aria-colcount", "48")
    assert 100_000 < visit.page.evaluate(BYTES) < MOST_BYTES
    keyboard = visit.page.keyboard

    def focused(layer: int, head: int) -> None:
        cell = visit.head(layer, head)
        expect(cell).to_be_focused()
        expect(cell).to_have_attribute("aria-colindex", str(head + 1))
        expect(cell.locator("..")).to_have_attribute("aria-rowindex", str(layer + 1))
        comes_to(lambda: cell.evaluate(SEEN), True)
        comes_to(lambda: cell.evaluate(BELOW) > 1, True)
        assert visit.page.evaluate("document.querySelectorAll('*').length") < MOST_NODES

    expect(visit.head(40, 40)).to_have_count(0)
    visit.head(2, 9).focus()
    for key, layer, head in [
        ("ArrowRight", 2, 10),
        ("End", 2, 47),
        ("PageDown", 47, 47),
        ("ArrowUp", 46, 47),
        ("Home", 46, 0),
    ]:
        keyboard.press(key)
        focused(layer, head)
    expect(visit.image("Heat map of head 46.0")).to_be_visible()

    # Scrolled away, the focus stays where it was.
    grid.evaluate("(element) => { element.closest('.holder').scrollTop = 0 }")
    expect(visit.head(0, 0)).to_be_visible()
    keyboard.press("ArrowRight")
    focused(46, 1)


def test_a_range_of_layers(visit: Visit) -> None:
    visit.open(address(model="large", text=TEXT, head="2.9", find="layer = 10 or layer = 20"))
    grid = visit.page.get_by_role("grid", name="Heads")
    layers = visit.page.get_by_role("group", name="Layers shown")
    expect(layers.get_by_role("status")).to_have_text("")
    layers.get_by_label("Last layer shown").select_option("15")
    layers.get_by_label("First layer shown").select_option("8")
    expect(grid).to_have_attribute("aria-rowcount", "8")
    expect(visit.head(8, 0)).to_be_visible()
    expect(visit.head(15, 0)).to_be_visible()
    expect(visit.head(7, 0)).to_have_count(0)
    expect(layers.get_by_role("status")).to_have_text("Not shown: 48 found heads, the open head 2.9.")
    visit.head(8, 3).click()
    expect(layers.get_by_role("status")).to_have_text("Not shown: 48 found heads.")
    for key, layer, head in [("ArrowUp", 8, 3), ("ArrowDown", 9, 3), ("PageDown", 15, 3)]:
        visit.page.keyboard.press(key)
        expect(visit.head(layer, head)).to_be_focused()
    comes_to(lambda: "layers=8-15" in visit.page.url, True)
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        visit.painted("head")
        expect(grid).to_have_attribute("aria-rowcount", "8")
    layers.get_by_role("button", name="show all 48").click()
    expect(grid).to_have_attribute("aria-rowcount", "48")
    visit.page.keyboard.press("Control+z")
    expect(grid).to_have_attribute("aria-rowcount", "8")


@pytest.mark.long
def test_a_long_text(visits: Callable[..., Visit]) -> None:
    """Every token is an element, so there is little room for others: what is closed has none."""
    letters = " ".join("abcdefgh"[i % 8] for i in range(2046))
    visit = visits(new=True)
    visit.page.add_init_script(FIRST)
    visit.open(address(model="long", text=letters, head="0.0"))
    # The heads wait neither for a map of 16 MB nor for tokens further down.
    assert visit.page.evaluate("window.first")[0] == 0
    assert 0 < visit.page.evaluate("window.batch") < 1000
    expect(visit.tokens).to_have_count(2048)
    visit.holds("performance.getEntriesByType('resource').some(({ name }) => name.includes('/maps/'))")
    # With as many heads as BERT base.
    assert visit.page.evaluate("document.querySelectorAll('*').length") + 12 * 12 < MOST_NODES
    inside = "document.querySelectorAll('dialog > :not(.top)').length"
    assert visit.page.evaluate(inside) == 0
    visit.page.keyboard.press("?")
    expect(visit.page.get_by_role("dialog").get_by_text("Undo", exact=False).first).to_be_visible()
    visit.page.keyboard.press("Escape")
    comes_to(lambda: visit.page.evaluate(inside), 0)
    # Tokens out of view have no colour and no number, which cost frames and megabytes with each head.
    last = visit.tokens.last
    expect(visit.tokens.nth(3)).to_have_attribute("title", re.compile("mean attention from all tokens: "))
    assert not last.get_attribute("style")
    last.scroll_into_view_if_needed()
    expect(last).to_have_attribute("title", re.compile("mean attention from all tokens: "))
    comes_to(lambda: "background-color" in (last.get_attribute("style") or ""), True)
    expect(visit.tokens.nth(3)).not_to_have_attribute("title", re.compile("attention"))
    # Canvases that have left the page give their pixels back.
    canvas = visit.image("Heat map of head 0.0").locator("canvas").first.element_handle()
    assert canvas.evaluate("(canvas) => canvas.width") > 100
    visit.page.get_by_role("radio", name="graph").check()
    comes_to(lambda: canvas.evaluate("(canvas) => canvas.isConnected ? -1 : canvas.width"), 0)
    visit.page.get_by_role("radio", name="heat map").check()
    # A scrolled text stays where it is while its measures change, and while it is replaced.
    visit.page.evaluate("window.first = undefined")
    visit.submit(letters.replace("h", "i"))
    assert visit.page.evaluate("window.first")[1] == 2048
    expect(last).to_be_in_viewport()


def test_a_map_that_is_read_in_parts(visit: Visit, server: Server) -> None:
    """Of more than 2,048 tokens the page has an overview, which says that it is one, and the entries that are zoomed into, which are those of the server."""
    letters = " ".join("abcdefgh"[i % 8] for i in range(2198))
    chosen = {"model": "long", "text": letters, "head": "1.1", "view": "both"}
    # Rows that are not adjacent are not read by themselves.
    visit.open(address(**chosen, pins="q1000 q1002 k1500"))
    readout = visit.page.get_by_role("status").filter(has_text="\u2192")
    expect(readout).to_contain_text("the largest nearby; zoom in for the exact value")
    expect(visit.page.get_by_text("The graph of a long text shows what is visible.", exact=False)).to_be_visible()
    (request,) = visit.page.evaluate(MAPS)
    assert "pool=3" in request
    image = visit.image("Heat map of head 1.1")
    overview = picture(image)

    def entries(query: str, key: str) -> NDArray[np.float64]:
        id_ = request.split("/analyses/")[1].split("/")[0]
        cell = {"layer": "1", "head": "1", "query": query, "key": key, "format": "json"}
        return np.array(server.get(f"/analyses/{id_}/maps/weights", params=cell).json()["map"][0][0])

    go = "(fragment) => { location.hash = fragment }"
    # The pinned cells are in the middle of what is zoomed into.
    visit.page.evaluate(go, address(**chosen, pins="q1000 q1002 k1500", zoom="0.659 0.432 0.05"))
    expect(readout).to_contain_text("averaged over queries")
    assert float(readout.locator("b").first.inner_text()) == pytest.approx(
        entries("1000:1003", "1500")[::2].mean(), abs=5e-5
    )
    another_picture(image, overview)
    expect(visit.page.get_by_role("img", name="Connections of head 1.1")).to_be_visible()
    # A query that is pinned alone has its whole row, wherever the window is.
    visit.page.evaluate(go, address(**chosen, pins="q1600 k1700"))
    expect(readout).to_contain_text("exactly")
    said = re.search(r"exactly (\S+)", readout.inner_text())
    assert said is not None
    assert np.float32(said[1]) == np.float32(entries("1600", "1700"))[0, 0]
    # The text has the tokens in view, which are those around the pinned ones, in the colours of that row.
    token = visit.page.get_by_role("toolbar", name="Tokens 1536 to 1727").get_by_role("button").nth(64)
    expect(token).to_be_in_viewport()
    expect(token).to_have_attribute("title", re.compile("attention from .h. \\(#1600\\): "))
    assert visit.page.locator("[data-token]").count() < 1500


@pytest.mark.long
def test_a_long_text_by_sentences(visit: Visit, server: Server) -> None:
    """The server folds its map: a cell of two sentences has the mean over queries of the sum over keys, and opens to their tokens."""
    text = " ".join(" ".join("abcdefgh"[(i + j) % 8] for i in range(49)) + "!" for j in range(43))
    visit.open(address(model="long", text=text, head="1.1", view="map", unit="sentences", pins="q1000 k480"))
    page = visit.page
    readout = page.get_by_role("status").filter(has_text="\u2192")
    expect(readout).to_contain_text("averaged over queries")
    expect(readout).not_to_contain_text("about")
    read = [address for address in page.evaluate(MAPS) if "groups=" in address]
    assert len(read) == 1
    id_ = read[0].split("/analyses/")[1].split("/")[0]
    cell = {"layer": "1", "head": "1", "query": "951:1001", "key": "451:501", "format": "json"}
    values = np.array(server.get(f"/analyses/{id_}/maps/weights", params=cell).json()["map"][0][0])
    assert float(readout.locator("b").first.inner_text()) == pytest.approx(values.sum(1).mean(), abs=5e-5)
    hand, unit = page.get_by_role("application"), page.get_by_role("combobox", name="Tokens", exact=True)
    expect(unit).to_have_value("sentences")
    at = box(hand)
    hand.dblclick(position={"x": 9.5 / 45 * at["width"], "y": 20.5 / 45 * at["height"]})
    expect(page.get_by_text(re.compile(r"^\s*queries \d+ to \d+, keys \d+ to \d+"))).to_be_visible()
    expect(unit).to_have_value("pieces")
    page.keyboard.press("Control+z")
    expect(unit).to_have_value("sentences")


@pytest.mark.long
def test_a_word_in_a_long_text(visit: Visit, server: Server) -> None:
    """The wheel zooms, a line says what is visible and how sharp, bars are the sums of all queries, and a word that is found leads to what it attends to."""
    letters = " ".join("mat" if i == 2000 else "abcdefgh"[i % 8] for i in range(2198))
    visit.open(address(model="long", text=letters, head="1.1", view="map"))
    page = visit.page
    level = page.get_by_text("a cell is the largest of 3 \u00d7 3 entries", exact=False)
    expect(level).to_contain_text("all 2200 tokens")
    expect(level).to_contain_text("bars: what each key receives")
    (sums,) = page.evaluate(MAPS.replace("/maps/", "/sums/"))
    received = load(server.get(sums.split("/api/v1")[1]).content)["keys"]
    expect(page.get_by_role("toolbar", name="Tokens 0 to 191").get_by_role("button").first).to_have_attribute(
        "title", re.compile(f"mean attention from all tokens: {received[0] / 2200:.4f}")
    )
    hand = page.get_by_role("application")
    at = box(hand)
    page.mouse.move(at["x"] + 0.6 * at["width"], at["y"] + 0.6 * at["height"])
    for _ in range(4):
        page.mouse.wheel(0, -200)
    shown = page.get_by_text(re.compile(r"^\s*queries \d+ to \d+, keys \d+ to \d+"))
    expect(shown).to_be_visible()
    expect(shown).not_to_contain_text("coarse")
    hand.press("0")
    expect(level).to_be_visible()

    page.mouse.move(1, 1)
    field = page.get_by_role("searchbox", name="Find a word in the text")
    field.fill("ma")
    field.press("Enter")
    expect(page.get_by_role("search").get_by_role("status")).to_have_text("1 of 1")
    readout = page.get_by_role("status").filter(has_text="\u2192")
    keys = readout.get_by_role("button", name=re.compile("^(?!copy)"))
    expect(keys).to_have_count(4)
    pins = "new URLSearchParams(location.hash.slice(1)).get('pins')"
    pinned = page.evaluate(pins)
    assert pinned.startswith("q")
    page.get_by_label("What is shown of the word").select_option("is looked at")
    comes_to(lambda: page.evaluate(pins), pinned.replace("q", "k"))
    expect(keys).to_have_count(4)
    keys.first.click()
    expect(readout).to_contain_text("exactly")
    expect(shown).to_be_visible()


# It only saves time; test_without_server.py has what is kept where the next text fails to come.
@pytest.mark.long
def test_a_long_text_leaves_before_the_next_one_comes(visit: Visit, server: Server) -> None:
    """Its elements beyond the first tokens are removed while the next document is fetched, which then waits for nothing; unless the next text fails to come."""
    long = "The cat sat on the mat. " * 60
    visit.open(address(model="long", text=long))
    expect(visit.tokens).to_have_count(422)
    held: list[Route] = []
    visit.page.route(re.compile(r"/analyses/[0-9a-f]{32}$"), lambda route: held.append(route))
    child = server.child()
    child.suspend()  # an answer that has the result already is not fetched again
    try:
        with visit.page.expect_response(lambda answer: answer.request.method == "POST"):
            visit.text.fill(f"{long}It slept.")
            visit.text.press("Enter")
    finally:
        child.resume()
    expect(visit.tokens).to_have_count(200)
    comes_to(lambda: count_held(visit.page, held), 1)
    visit.network_errors_expected = True
    held.pop().abort()
    expect(visit.tokens).to_have_count(422)
    expect(visit.alert).to_be_visible()
    visit.page.unroute_all()
    visit.text.press("Enter")
    expect(visit.tokens).to_have_count(429)
