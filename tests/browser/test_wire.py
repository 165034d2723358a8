"""When things are painted, and what they cost on the wire."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Route

from tests.browser.visit import Visit
from tests.support.extent import mostly_long

WORDS = "the boats lay by the river bank while the bank in town kept money they had earned".split()
LIMIT = 400_000
# When requests for whole maps began.
MAPS = "performance.getEntriesByType('resource').flatMap(({ name, startTime }) => (name.includes('/maps/') ? [startTime] : []))"


def text_of(tokens: int) -> str:
    """Single-token words, so that with [CLS] and [SEP] there are exactly `tokens`."""
    return " ".join(WORDS[i % len(WORDS)] for i in range(tokens - 2))


class Wire:
    """Bytes received, by request, as the browser's network stack counts them."""

    def __init__(self, visit: Visit) -> None:
        session = visit.context.new_cdp_session(visit.page)
        session.send("Network.enable")
        self.begun: dict[str, float] = {}
        self.bytes: dict[str, int] = {}
        session.on("Network.requestWillBeSent", self._sent)
        session.on("Network.dataReceived", lambda event: self._add(event, event["encodedDataLength"]))
        session.on("Network.responseReceived", lambda event: self._add(event, event["response"]["encodedDataLength"]))
        session.on("Network.loadingFinished", self._finished)

    def _sent(self, event: dict[str, Any]) -> None:
        self.begun[event["requestId"]] = 1000 * event["wallTime"]

    def _add(self, event: dict[str, Any], count: int) -> None:
        self.bytes[event["requestId"]] = self.bytes.get(event["requestId"], 0) + count

    def _finished(self, event: dict[str, Any]) -> None:
        self.bytes[event["requestId"]] = max(self.bytes.get(event["requestId"], 0), event["encodedDataLength"])

    def until(self, visit: Visit, mark: float) -> int:
        """All bytes of the requests begun before a mark, whenever they ended: no less than what came before it."""
        visit.painted("graph", mark)
        epoch = float(visit.page.evaluate("performance.timeOrigin"))
        begun = [request for request, at in self.begun.items() if at <= epoch + mark]
        assert begun
        return sum(self.bytes.get(request, 0) for request in begun)


@pytest.fixture
def visit(visits: Callable[..., Visit]) -> Visit:
    """A new page: what an earlier one has kept does not come over the wire."""
    return visits(new=True)


@pytest.mark.parametrize("tokens", mostly_long([12, 64, 512], 64))
def test_first_grid_is_light_and_in_order(visit: Visit, tokens: int) -> None:
    """submit, then grid, then head and graph; at most 0.4 MB from pressing Analyse to the grid."""
    visit.open()
    visit.page.get_by_role("checkbox", name="live").uncheck()
    visit.text.fill(text_of(tokens))
    wire = Wire(visit)
    before = visit.now()
    visit.analyse.click()
    submit = visit.painted("submit", before)
    grid = visit.painted("grid", submit)
    head = visit.painted("head", submit)
    assert submit < grid <= head
    assert grid <= visit.painted("graph", grid)
    visit.page.get_by_text(f"{tokens} tokens · 72 heads").wait_for()
    begun = [at for at in visit.page.evaluate(MAPS) if at > submit]
    assert begun
    assert submit < grid < min(begun)
    assert 5_000 < wire.until(visit, grid) < LIMIT


def test_first_visit_is_light(visit: Visit) -> None:
    """Page, script, style and first grid together."""
    wire = Wire(visit)
    visit.open()
    assert 50_000 < wire.until(visit, visit.painted("grid")) < LIMIT


@pytest.mark.long
def test_maps_are_fetched_once(visit: Visit) -> None:
    """Going back to a head costs nothing."""
    visit.open()
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    for head in (3, 4, 3, 4):
        before = visit.now()
        visit.head(3, head).click()
        visit.painted("head", before)
    maps = [url for url in asked if "/maps/" in url]
    assert maps
    assert len(maps) == len(set(maps))


# It only saves time.
@pytest.mark.long
def test_nothing_is_prefetched_while_a_text_is_computed(visit: Visit) -> None:
    """Only the map of the opened head is requested: its neighbours would delay the new text."""
    visit.open().page.wait_for_load_state("networkidle")  # its own neighbours have been requested
    visit.page.get_by_role("checkbox", name="live").uncheck()
    held: list[Route] = []
    visit.page.route(re.compile("/events$"), lambda route: held.append(route))
    visit.text.fill(text_of(20))
    with visit.page.expect_request(re.compile("/events$")):
        visit.analyse.click()
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    before = visit.now()
    visit.head(0, 1).click()
    visit.painted("head", before)
    visit.page.wait_for_timeout(400)  # neighbours are requested after 120 ms of rest
    assert [re.findall(r"layer=(\d+)&head=(\d+)", url) for url in asked if "/maps/" in url] == [[("0", "1")]]
    with visit.page.expect_request(re.compile("/maps/")):
        for route in held:
            route.continue_()
    visit.idle()
