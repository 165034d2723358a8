"""What can be measured of how it looks: contrast, width, motion, in both themes and three windows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.visit import Visit, address, comes_to
from tests.support.extent import extent, mostly_long
from tests.support.server import eventually

SIZES = [(1440, 900), (1024, 768), (390, 844)]
TEXT = "The boats lay by the river bank while the bank in town kept the money. " * 3

# Contrast of every text on screen against the nearest ground below it (WCAG 2); canvases are judged by eye.
CONTRASTS = """() => {
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  const parse = (text) => text.match(/[\\d.]+/g).map(Number)
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255)
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor)
      if (colour.length === 3 || colour[3] === 1) return colour
    }
    return [255, 255, 255]
  }
  const found = []
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement
    const box = element.getBoundingClientRect()
    if (!walker.currentNode.data.trim() || box.width < 2 || element.closest('.unseen, option, noscript, [hidden]')) continue
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x)
    found.push([(a + 0.05) / (b + 0.05), walker.currentNode.data.trim()])
  }
  return found
}"""


def faint(visit: Visit) -> list[list[float | str]]:
    """Texts with too little contrast."""
    return [item for item in visit.page.evaluate(CONTRASTS) if item[0] < 4.5]


# The gallery is looked at in the light.
@pytest.mark.parametrize(
    ("scheme", "lens"), mostly_long([("light", "weights"), ("dark", "effective")], ("dark", "effective"))
)
def test_contrast(visits: Callable[..., Visit], scheme: str, lens: str) -> None:
    visit = visits(color_scheme=scheme).open(address(text=TEXT, lens=lens, head="2.9"))
    visit.painted("graph")
    expect(visit.page.locator("html")).to_have_attribute("data-theme", scheme)
    eventually(lambda: len(visit.page.evaluate(CONTRASTS)) > 100, "all texts")
    comes_to(lambda: faint(visit), [])


def test_theme_is_remembered(visit: Visit) -> None:
    visit.open()
    visit.page.get_by_role("button", name="Dark theme").click()
    visit.page.reload()
    visit.painted("head")
    expect(visit.page.get_by_role("button", name="Light theme")).to_be_visible()


@pytest.mark.parametrize(
    "choice",
    mostly_long(
        [{"view": "both"}, {"view": "both", "compare": "side"}, {"view": "graph"}], {"view": "both", "compare": "side"}
    ),
)
def test_no_sideways_scrolling(visit: Visit, choice: dict[str, str]) -> None:
    """At every size, also when a window is made smaller or larger."""
    visit.page.goto(f"{visit.root}/{address(text=TEXT, **choice)}")
    visit.painted("graph")
    for width, height in [*SIZES[1:], SIZES[0]]:
        before = visit.now()
        visit.page.set_viewport_size({"width": width, "height": height})
        visit.painted("graph", before)
        visit.holds(f"document.documentElement.scrollWidth <= {width}")


def test_nothing_jumps_between_texts(visit: Visit) -> None:
    """Grid, tokens, map and words begin where they began, whatever the length of the text."""
    places = """() => ['[role=grid]', '#text-title', '#numbers-title', '#head-title', '[role=img][aria-label^="Heat map"] canvas']
      .map((name) => { const { x, y } = document.querySelector(name).getBoundingClientRect(); return [x, y] })"""
    visit.open().painted("graph")
    visit.idle()
    before = visit.page.evaluate(places)
    for text in extent(("Short.", TEXT * 4), (TEXT * 4,)):
        visit.submit(text)
        comes_to(lambda: visit.page.evaluate(places), before)


def test_less_motion(visits: Callable[..., Visit]) -> None:
    """Where less motion is asked for nothing moves by itself."""
    visit = visits(reduced_motion="reduce").open()
    durations = "[...new Set([...document.querySelectorAll('*')].map((e) => getComputedStyle(e).transitionDuration))]"
    assert visit.page.evaluate(durations) == ["0s"]
