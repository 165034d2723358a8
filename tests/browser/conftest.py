"""One browser and one server with MiniLM for the whole folder; every visit must end without a complaint of the browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.visit import Visit
from tests.support.chromium import chromium
from tests.support.gguf_files import CHATML, write
from tests.support.hub import Hub
from tests.support.models import HOPFIELD, tiny_model, tiny_reader, tiny_twin
from tests.support.server import Server


@pytest.fixture(scope="package")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`deep`, whose analysis takes seconds, so that a person can watch, cancel, or lose it; one with an encoder and a decoder, one of images, one of images beside texts,
    one that writes on, one that converses; one of 2,304 heads, one of 4,096 tokens, one whose heads choose among 2,048; and two twins, of other weights so
    that their maps differ to the eye.
    """
    folder = tmp_path_factory.mktemp("browser-models")
    tiny_model(folder / "t5", "t5")
    tiny_model(folder / "vit", "vit")
    tiny_model(folder / "writer", "gpt2")
    write(folder / "chat.gguf", template=CHATML)
    tiny_reader(folder / "reader")
    tiny_twin(folder / "twin-bert-softmax", layers=3, width=64, seed=1)
    tiny_twin(folder / "twin-bert-hopfield", mechanism=HOPFIELD, layers=3, width=64, seed=2)
    tiny_model(folder / "large", layers=48, heads=48, width=96)
    tiny_model(folder / "long", heads=2, positions=4096)
    tiny_model(folder / "sharp", heads=2, positions=2048, spread=0.15)
    tiny_model(folder / "deep", "gpt2", layers=60, width=256, heads=2, positions=1024)
    return folder


@pytest.fixture(scope="package")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with one model, org/tiny."""
    top = tmp_path_factory.mktemp("browser-hub")
    tiny_model(top / "org" / "tiny")
    with Hub(top) as running:
        yield running


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, models: Path, hub: Hub) -> Iterator[Server]:
    """A real server with MiniLM, which every installation has."""
    home = tmp_path_factory.mktemp("browser") / "home"
    with Server(home, models, prewarm=True, hub="any", HF_ENDPOINT=hub.url) as running:
        yield running


@pytest.fixture(scope="package")  # no longer: while it is there, nothing else may run an event loop
def browser() -> Iterator[Browser]:
    """The Chromium of this machine."""
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="package")
def emptied() -> Iterator[list[Visit]]:
    """Pages that earlier tests have used and left empty: they load with a quarter less processor time than a new one."""
    pages: list[Visit] = []
    yield pages
    for page in pages:
        page.close()


@pytest.fixture
def visits(browser: Browser, server: Server, emptied: list[Visit]) -> Iterator[Callable[..., Visit]]:
    """Begins visits, each as in a browser that has never been here; `root` names another server, and other arguments are those of Visit.begin.

    What a test does to a page that cannot be taken back, such as scripts that are added to it, or counts, such as its history or bytes on the wire, needs a `new` one,
    which may have options of a context.
    """
    begun: list[tuple[Visit, bool]] = []

    def begin(root: str = f"http://{server.url}", *, new: bool = False, **options: Any) -> Visit:
        visit = Visit(browser, root, **options) if new else (emptied.pop() if emptied else Visit(browser, root))
        begun.append((visit, new))
        return visit if new else visit.begin(root, **options)

    yield begin
    for visit, new in begun:
        if new:
            visit.close()
        else:
            visit.empty()
            emptied.append(visit)


@pytest.fixture
def visit(visits: Callable[..., Visit]) -> Visit:
    """One visit at 1500 by 900, the smallest window in which map and graph are beside each other."""
    return visits()
