"""Texts that would like to be more than text: in the text, in the second text, and in every field of the address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.visit import Visit, address
from tests.support.extent import extent, mostly_long
from tests.support.hostile import HOSTILE
from tests.support.server import Server, eventually
from tests.support.variants import variants

NODES = """() => [
  document.querySelectorAll('script, img, iframe, object, embed, link, style, base, meta, video, math, form').length,
  [...document.querySelectorAll('*')].filter((e) => e.getAttributeNames().some((n) => n.startsWith('on'))).length,
  document.title,
]"""


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Visit]:
    """One page for all of them: what an earlier one left would be found by the next."""
    visit = Visit(browser, f"http://{server.url}", viewport={"width": 1100, "height": 640})
    yield visit.open()
    visit.close()


def said(visit: Visit) -> str:
    return "".join(visit.tokens.all_text_contents()).lower()


@variants(("text", "pair"), list(zip(HOSTILE[::2], HOSTILE[1::2], strict=True)), short=3)
def test_is_only_text(page: Visit, text: str, pair: str) -> None:
    """No dialog, no violation, no node, no handler: its letters on screen, in their boxes, and that is all."""
    nodes = page.page.evaluate(NODES)
    before = page.now()
    fields = dict.fromkeys(("lens", "head", "scale", "view", "mass"), text)
    fields |= dict.fromkeys(("other", "colour", "compare", "rule", "k"), pair)
    page.page.goto(f"{page.root}/{address(text=text, pair=pair, **fields)}")
    page.settled(before)
    second = page.page.get_by_role("textbox", name="Second segment")
    for words, field in ((text, page.text), (pair, second)):
        expect(field).to_have_value(words.replace("\r\n", "\n"))
        if words.isascii():
            eventually(lambda words=words: "".join(words.split()).lower() in said(page), "the letters of the text")
    expect(page.alert).to_have_count(0)
    assert page.page.evaluate(NODES) == nodes
    assert page.problems == []


@pytest.mark.parametrize("text", mostly_long([HOSTILE[1], HOSTILE[32], HOSTILE[34]], HOSTILE[1]))
def test_typed_and_pointed_at(page: Visit, text: str) -> None:
    """The same by hand: typed, analysed, every token pointed at."""
    nodes = page.page.evaluate(NODES)
    page.submit(text)
    for index in range(min(12, page.tokens.count())):
        page.tokens.nth(index).hover()
    assert page.page.evaluate(NODES) == nodes
    assert page.problems == []


def test_in_the_query_box(visits: Callable[..., Visit]) -> None:
    """A sentence that is not understood is quoted in the question as plain text."""
    visit = visits()
    visit.network_errors_expected = True
    visit.open()
    nodes = visit.page.evaluate(NODES)
    box = visit.page.get_by_role("searchbox", name="Find heads")
    for text in (HOSTILE[number] for number in (0, 1, 40, 43, 46, 58)[:: extent(1, 2)]):
        box.fill(text)
        with visit.page.expect_response(re.compile("/ask|/heads")):
            box.press("Enter")
        expect(box).to_have_value(text)
        assert visit.page.evaluate(NODES) == nodes


def test_in_the_name_of_a_file(visits: Callable[..., Visit]) -> None:
    """Neither the name nor what is in it."""
    visit = visits().open()
    nodes, before = visit.page.evaluate(NODES), visit.now()
    file = {"name": "<img src=x onerror=alert(1)>.txt", "mimeType": "text/plain", "buffer": HOSTILE[18].encode()}
    visit.page.get_by_role("banner").locator("input[type=file]").set_input_files([file])
    visit.settled(before)
    expect(visit.text).to_have_value(HOSTILE[18])
    assert visit.page.evaluate(NODES) == nodes


def test_hostile_model_and_mechanism(visits: Callable[..., Visit]) -> None:
    """What is refused is refused in words that do not repeat it."""
    visit = visits()
    visit.network_errors_expected = True
    for fields in ({"model": HOSTILE[0]}, {"mechanism": HOSTILE[1]}, {"model": "../../etc"})[: extent(3, 2)]:
        visit.page.goto("about:blank")
        visit.page.goto(f"{visit.root}/{address(text='Hello.', **fields)}")
        expect(visit.alert).to_be_visible()
        expect(visit.alert).not_to_contain_text("alert(1)")
        expect(visit.page.locator("img, script:not([src])")).to_have_count(0)
