"""Texts whose maps are more than the server keeps: the page asks for less, shows that, and says what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from headscope.analysis import memory
from headscope.analysis.request import AnalysisRequest
from tests.browser.axe import check
from tests.browser.visit import Visit, address
from tests.support.extent import extent
from tests.support.models import tiny_model
from tests.support.server import Server

LAYERS, HEADS = 2, 4
# Tokens of a text of which one lens fits, and of one of which only thumbnails do.
LONG, LONGER = 62, 70


def text_of(tokens: int) -> str:
    """One token per letter, and two special ones."""
    return " ".join("abcdefghij"[i % 10] for i in range(tokens - 2))


def room(tokens: int, *lenses: str) -> int:
    """Bytes that an analysis of so many tokens takes."""
    asked = {"model": "tiny", "text": "a", "lenses": list(lenses), "measures": ["entropy"]}
    request = AnalysisRequest.model_validate(asked)
    return memory.plan(request, dict.fromkeys(range(LAYERS), HEADS), tokens, tokens).bytes


# Other names of the model.
OTHERS = [f"tiny-{number:03}" for number in range(210)]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with room for one lens of the long text, and with more models than the interface lists at once."""
    folder = tmp_path_factory.mktemp("crowded")
    tiny = tiny_model(folder / "models" / "tiny", layers=LAYERS, heads=HEADS)
    for name in OTHERS:
        tiny.with_name(name).symlink_to(tiny)
    limit = room(LONG, "weights")
    assert limit < min(room(LONG, "weights", "effective"), room(LONGER, "weights"))
    assert limit > room(LONGER)
    with Server(folder / "home", folder / "models", job_bytes=limit, keep="maps") as running:
        yield running


def test_one_lens_at_a_time(visits: Callable[..., Visit], crowded: Server) -> None:
    """Only the open lens is read, with a message that names both sizes; another lens is read when it is chosen."""
    visit = visits(f"http://{crowded.url}")
    visit.network_errors_expected = True
    visit.open(address(model="tiny", text=text_of(LONG), head="1.1"))
    said = visit.page.get_by_text("Only this lens was computed: all of them would need").first
    expect(said).to_be_visible()
    expect(said).to_contain_text(", and the limit is")
    expect(said).to_contain_text("Choose another lens above")
    expect(visit.image("Heat map of head 1.1")).to_be_visible()
    for lens in ("effective", "weights"):
        visit.lens(lens)
        expect(said).to_be_visible()
    expect(visit.alert).to_have_count(0)


def test_thumbnails_where_no_lens_fits(visits: Callable[..., Visit], crowded: Server) -> None:
    """Grid, thumbnails and numbers are there, and instead of the graph a sentence; a shorter text is whole again."""
    visit = visits(f"http://{crowded.url}")
    visit.network_errors_expected = True
    visit.page.goto(f"{visit.root}/{address(model='tiny', text=text_of(LONGER), head='1.1')}")
    visit.painted("grid")
    expect(visit.page.get_by_text("Only thumbnails and numbers are available").first).to_be_visible()
    expect(visit.page.get_by_text("thumbnail (largest entry per pixel)").last).to_be_visible()
    expect(visit.page.get_by_text("only a thumbnail is available")).to_be_visible()
    expect(visit.page.get_by_text("a query spreads over")).to_be_visible()
    check(visit, narrow=False)
    visit.head(0, 2).click()
    expect(visit.image("Heat map of head 0.2")).to_be_visible()
    visit.page.get_by_role("application", name="Cells of the heat map of head 0.2").hover()
    expect(visit.alert).to_have_count(0)
    visit.submit("a b c")
    expect(visit.page.get_by_text("thumbnails and numbers only")).to_have_count(0)


def test_every_model_is_offered(visits: Callable[..., Visit], crowded: Server) -> None:
    visit = visits(f"http://{crowded.url}").open(address(model="tiny", text="a b c"))
    for name in (OTHERS[0], OTHERS[-1])[extent(0, 1) :]:
        before = visit.now()
        visit.page.get_by_role("combobox", name="Model", exact=True).select_option(name)
        visit.settled(before)
