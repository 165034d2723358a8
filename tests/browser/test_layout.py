"""Room for the figure: what the window gives to it, and what a person can give to it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.visit import Visit, address, box, comes_to
from tests.support.extent import mostly_long

WORDS = "the boats lay by the river bank while the bank in town kept money they had earned".split()
LABEL = 74  # pixels that names take beside and above a heat map
EDGES = f"""() => [...document.querySelectorAll('[role=img][aria-label*=" map of "]')]
  .map((image) => Math.round(image.getBoundingClientRect().width) - {LABEL} - 1)"""
OVERFLOW = "[document.documentElement.scrollWidth - innerWidth, document.documentElement.scrollHeight - innerHeight]"

# Sentences whose question mark is on a line of its own.
APART = """() => [...document.querySelectorAll('[aria-label^="What is "]')].filter((mark) => {
  const before = document.createRange()
  before.setStart(mark.closest('p'), 0)
  before.setEndBefore(mark)
  const [end, place] = [[...before.getClientRects()].at(-1), mark.getBoundingClientRect()]
  return Math.abs(end.top + end.bottom - place.top - place.bottom) > 16
}).map((mark) => mark.closest('p').textContent)"""

# What a finger can miss: controls below 24 px that are not in a line of words.
SMALL = """() => [...document.querySelectorAll('button:not(.mark), select, summary, input:not([type=checkbox], [type=radio], [type=file]), .quiet, .tab, label:has(input)')]
  .filter((control) => control.checkVisibility())
  .filter((control) => { const { width, height } = control.getBoundingClientRect(); return width < 24 || height < 24 })
  .map((control) => control.outerHTML.slice(0, 90))"""

# Words that an edge of an element cuts; those of lines below it are left out.
CUT = """(field) => {
  const edge = field.getBoundingClientRect()
  const words = document.createTreeWalker(field, NodeFilter.SHOW_TEXT)
  const cut = []
  while (words.nextNode()) {
    const range = document.createRange()
    range.selectNodeContents(words.currentNode)
    for (const { top, left, right, bottom } of range.getClientRects())
      if (top < edge.bottom - 1 && left < edge.right && (right > edge.right + 1 || bottom > edge.bottom + 2)) cut.push(words.currentNode.data)
  }
  return cut
}"""


def text_of(tokens: int) -> str:
    """Single-token words, so that with [CLS] and [SEP] there are exactly `tokens`."""
    return " ".join(WORDS[i % len(WORDS)] for i in range(tokens - 2))


def resize(visit: Visit, width: int, height: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": height})


def edge(visit: Visit) -> int:
    """The smallest side of the maps on screen, in pixels, once they stand still."""
    box(visit.page.get_by_role("img", name=re.compile(" map of ")).last)
    return int(min(visit.page.evaluate(EDGES)))


@pytest.mark.long
def test_edge_of_the_map(visit: Visit) -> None:
    """52 tokens in the usual windows: a header of one strip, a large map, and nothing that scrolls."""
    visit.open(address(text=text_of(52)))
    for width, height, least, view in [
        (1366, 768, 460, "heat map"),
        (1440, 900, 560, "heat map"),
        (1920, 1080, 800, "both"),
    ]:
        resize(visit, width, height)
        expect(visit.page.get_by_role("radio", name=view, exact=True)).to_be_checked()
        assert edge(visit) >= least, f"at {width} by {height}"
        comes_to(lambda: visit.page.evaluate(OVERFLOW), [0, 0])
        assert box(visit.page.get_by_role("banner"))["height"] == 48
    # The legend is beside the title, above the map.
    figure = visit.page.get_by_role("figure").first
    legend, map_ = box(figure.get_by_label("Colour range")), box(figure.get_by_role("img"))
    assert legend["y"] + legend["height"] <= map_["y"]
    resize(visit, 1440, 900)
    for view in ("heat map", "both"):
        visit.page.get_by_role("radio", name="side by side", exact=True).check()
        visit.page.get_by_role("radio", name=view, exact=True).check()
        expect(visit.page.get_by_role("img", name=re.compile(" map of "))).to_have_count(2)
        assert edge(visit) >= 330, view


@pytest.mark.long
def test_what_does_not_fit_is_left_out(visit: Visit) -> None:
    """The unit of the tokens to generate, and the button beside it."""
    visit.open(address(model="writer", text="The cat sat."))
    field = visit.page.locator(".second", has=visit.page.get_by_role("spinbutton", name="Generate"))
    for width in (1110, 1366, 1920):
        resize(visit, width, 900)
        box(field)
        assert field.evaluate(CUT) == [], width
    expect(visit.page.get_by_role("button", name="generate 20")).to_be_in_viewport()


@pytest.mark.long
def test_the_text_grows_to_be_edited(visit: Visit) -> None:
    """One line until it is focused; then six, over what is below, in which 128 tokens can be read; Enter makes it one line again."""
    visit.open(address(text=text_of(128), view="map"))
    resize(visit, 1366, 768)
    header, place = visit.page.get_by_role("banner"), box(visit.image("Heat map of head 2.9"))
    assert box(visit.text)["height"] < 30
    visit.text.focus()
    assert box(visit.text)["height"] >= 6 * 20
    assert visit.text.evaluate("(area) => area.scrollHeight <= area.clientHeight"), "not all of the text can be read"
    assert visit.text.evaluate("(area) => getComputedStyle(area).resize") == "vertical"
    assert box(header)["height"] == 48
    assert box(visit.image("Heat map of head 2.9")) == place
    expect(visit.page.get_by_role("button", name="open a file")).to_be_visible()
    visit.text.fill(text_of(250))
    visit.text.press("Control+End")
    assert visit.text.evaluate("(area) => area.scrollTop") > 0
    before = visit.now()
    visit.text.press("Enter")
    visit.settled(before)
    assert box(visit.text)["height"] < 30
    assert visit.text.evaluate("(area) => area.scrollTop") == 0, "the one line is not the first"
    assert visit.text.evaluate("(area) => area.scrollLeft") == 0, "the line does not begin at its first letter"
    assert visit.text.evaluate("(area) => area.scrollWidth > area.clientWidth"), "the line is broken before the edge"
    expect(visit.text).to_be_focused()


def test_only_the_figure(visit: Visit) -> None:
    """`.` hides all but the open head, which arrows still change; the address keeps it; Escape brings the rest back."""
    visit.open(address(text=text_of(52), view="map", head="2.9"))
    others = [
        visit.page.get_by_role(role, name=name)
        for role, name in [("banner", None), ("grid", "Heads"), ("toolbar", "Tokens"), ("region", "Statistics")]
    ]
    before = edge(visit)
    visit.page.keyboard.press(".")
    for other in others:
        expect(other).to_be_hidden()
    expect(visit.page).to_have_url(re.compile("focus="))
    comes_to(lambda: edge(visit) > before, True)
    comes_to(lambda: visit.page.evaluate(OVERFLOW), [0, 0])
    visit.page.keyboard.press("ArrowRight")
    expect(visit.image("Heat map of head 2.10")).to_be_visible()
    visit.page.keyboard.press("Escape")
    for other in others:
        expect(other).to_be_visible()
    comes_to(lambda: edge(visit), before)
    visit.page.get_by_role("button", name="focus").click()
    expect(others[0]).to_be_hidden()
    visit.page.keyboard.press(".")
    expect(others[0]).to_be_visible()


@pytest.mark.long
def test_no_sentence_is_cut(visit: Visit) -> None:
    """The caption of the tokens, which graph is on screen, and what a number in the readout is."""
    visit.open(address(text=text_of(52)))
    visit.page.set_viewport_size({"width": 1366, "height": 768})
    captions, splitter = visit.page.locator(".captions"), visit.page.get_by_role("separator")
    hint = captions.get_by_text("point at one for its own")
    expect(hint).to_be_in_viewport(ratio=1)
    for _ in range(10):
        splitter.press("ArrowLeft")
        assert captions.evaluate(CUT) == []
    expect(captions).to_have_attribute("title", re.compile("to each · point at one for its own$"))
    splitter.dblclick()
    visit.page.get_by_role("radio", name="side by side", exact=True).check()
    visit.page.get_by_role("radio", name="both", exact=True).check()
    readout = visit.page.locator("p.readout")
    for width, height in ((1440, 900), (1366, 768), (1150, 800)):
        resize(visit, width, height)
        part = visit.page.get_by_text(re.compile(r"^Tokens \d+ to \d+ of 52")).last
        line, end = box(part), box(readout)
        assert line["y"] + line["height"] <= end["y"] or line["y"] >= end["y"] + end["height"], (width, line, end)
        assert line["y"] + line["height"] <= box(visit.page.get_by_role("region", name="Statistics"))["y"]
        place = box(visit.page.get_by_role("application", name=re.compile("^Cells of ")).first)
        mouse = visit.page.mouse
        mouse.move(place["x"] + 0.4 * place["width"], place["y"] + 0.4 * place["height"])
        mouse.down()
        mouse.move(place["x"] + 0.6 * place["width"], place["y"] + 0.6 * place["height"], steps=4)
        mouse.up()
        expect(readout).to_contain_text("averaged over queries")
        assert readout.evaluate("({ scrollHeight, clientHeight }) => scrollHeight <= clientHeight"), width
        visit.page.keyboard.press("Escape")


@pytest.mark.long
def test_an_explanation_opens_in_view(visit: Visit) -> None:
    """Also that of the last number, at the lower edge of its column."""
    visit.open(address(text=text_of(52)))
    visit.page.set_viewport_size({"width": 1366, "height": 768})
    ask = visit.page.get_by_role("button", name="What is leverage?")
    ask.evaluate("(button) => button.scrollIntoView({ block: 'end' })")
    ask.click()
    line = box(visit.page.get_by_role("region", name="Statistics"))["y"]
    said = box(visit.page.locator("p.doc:not([hidden])"))
    assert said["height"] > 0
    assert said["y"] + said["height"] <= line


def test_the_splitter(visit: Visit) -> None:
    """Dragged or moved by keys, it gives width to one side; the browser remembers it; a double click resets it."""
    visit.open(address(text=text_of(12), view="map"))
    splitter = visit.page.get_by_role("separator", name="Width of the grid of heads")
    grid = visit.page.get_by_role("grid", name="Heads")
    start, heads = box(splitter), box(grid)["width"]
    usual = splitter.get_attribute("aria-valuenow")
    visit.page.mouse.move(start["x"] + 4, 400)
    visit.page.mouse.down()
    visit.page.mouse.move(start["x"] - 146, 400, steps=3)
    visit.page.mouse.up()
    assert box(splitter)["x"] == start["x"] - 150
    assert box(grid)["width"] < heads - 100
    splitter.focus()
    splitter.press("ArrowRight")
    assert box(splitter)["x"] == start["x"] - 134
    visit.page.reload()
    visit.painted("head")
    assert box(splitter)["x"] == start["x"] - 134
    splitter.press("Home")
    expect(splitter).to_have_attribute("aria-valuenow", splitter.get_attribute("aria-valuemin") or "")
    splitter.dblclick()
    expect(splitter).to_have_attribute("aria-valuenow", usual or "")


def test_a_finger_has_room(visits: Callable[..., Visit]) -> None:
    """On a touch screen every control is at least 24 px wide and high, for an analysis and for a new study; a mark in a line of words takes touches beside it."""
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    visit = visits(new=True, **phone).open(address(text=text_of(12), head="2.3"))
    expect(visit.image("Heat map of head 2.3")).to_be_visible()
    assert visit.page.evaluate(SMALL) == []
    mark = visit.page.get_by_role("button", name=re.compile("^What is ")).first
    mark.scroll_into_view_if_needed()
    place = box(mark)
    visit.page.touchscreen.tap(place["x"] + place["width"] / 2, place["y"] - 3)
    expect(mark).to_have_attribute("aria-expanded", "true")
    visit.page.goto(f"{visit.root}/?studies#study=new")
    expect(visit.page.get_by_role("heading", name="New study")).to_be_visible()
    assert visit.page.evaluate(SMALL) == []


@pytest.mark.parametrize(("width", "height"), mostly_long([(1024, 768), (390, 844)], (390, 844)))
def test_all_of_it_on_small_screens(visits: Callable[..., Visit], width: int, height: int) -> None:
    """Every control can be reached, within the width of the window; the readout is at its edge."""
    visit = visits(viewport={"width": width, "height": height}).open(address(text=text_of(52)))
    assert visit.page.evaluate(OVERFLOW)[0] == 0
    controls = [visit.text, visit.analyse, visit.page.get_by_role("status").last, visit.head(5, 11)]
    controls += [
        visit.page.get_by_role("combobox", name=name) for name in ("Model", "Mechanism", "Lens", "Compare with")
    ]
    controls += [
        visit.page.get_by_role("button", name=name, exact=True) for name in ("Examples", "History", "Spectrum")
    ]
    for control in controls:
        control.scroll_into_view_if_needed()
        place = box(control)
        assert place["x"] >= 0, control
        assert place["x"] + place["width"] <= width, control
    assert box(visit.text)["width"] > (600 if width > 640 else 100)
    # The box grows while a text is edited; what analyses it is not covered.
    visit.text.click()
    visit.analyse.click(trial=True, timeout=2000)
    visit.page.get_by_role("checkbox", name="live").click(trial=True, timeout=2000)
    assert visit.page.evaluate(OVERFLOW)[0] == 0
    visit.page.get_by_role("heading", name="Tokens").click()
    for name, opened in (("Examples", "Texts to begin with"), ("copy", "Copy"), ("download", "Download")):
        opener = visit.page.get_by_role("button", name=name).first
        opener.click()
        panel = visit.page.get_by_role("group", name=opened)
        assert box(panel)["x"] >= 0, name
        assert box(panel)["x"] + box(panel)["width"] <= width, name
        for choice in panel.get_by_role("button").all():  # nothing else is above them
            choice.click(trial=True, timeout=2000)
        opener.press("Escape")
    left = visit.page.get_by_role("separator", name="Width of the grid of heads")
    marks = visit.page.get_by_role("button", name=re.compile("^What is "))
    expect(marks).to_have_count(3)
    for _ in range(12 if width > 640 else 1):
        assert visit.page.evaluate(APART) == []
        if width > 640:
            left.press("ArrowRight")
    cells = visit.page.get_by_role("application", name=re.compile("^Cells of "))
    for view in ("heat map", "both"):
        visit.page.get_by_role("radio", name=view, exact=True).check()
        cells.evaluate("(map) => map.scrollIntoView({ block: 'end' })")
        readout = box(visit.page.locator("p.readout"))
        assert 0 <= readout["y"] <= height - readout["height"], view
