"""An analysis of some layers and heads only: on the page every head keeps its number, and only those that were analysed are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.visit import Visit
from tests.support.server import Server

TEXT = "The boats lay by the river bank."
CELLS = "(cells) => cells.map((cell) => cell.getAttribute('aria-label'))"


@pytest.fixture(scope="module")
def file(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such an analysis as a page."""
    asked = {"text": TEXT, "lenses": ["weights", "rollout"], "measures": ["entropy"]}
    id_ = server.analyse(**asked, model="minilm", layers=[1, 4], heads=[2, 5])["id"]
    path = tmp_path_factory.mktemp("part") / "page.html"
    path.write_bytes(server.get(f"/analyses/{id_}/export", params={"format": "html"}).content)
    return path


@pytest.fixture
def visit(browser: Browser, file: Path) -> Iterator[Visit]:
    visit = Visit(browser, file.as_uri())
    yield visit
    visit.close()


def test_heads_keep_their_numbers(visit: Visit) -> None:
    """In the grid, over the map and along the arrows."""
    visit.open("#head=4.5", "")
    cells = visit.page.get_by_role("gridcell")
    assert cells.evaluate_all(CELLS) == [f"Layer {layer}, head {head}" for layer in (1, 4) for head in (2, 5)]
    expect(visit.image("Heat map of head 4.5")).to_be_visible()
    visit.head(4, 5).press("ArrowLeft")
    expect(visit.image("Heat map of head 4.2")).to_be_visible()
    visit.head(4, 2).press("ArrowUp")
    expect(visit.image("Heat map of head 1.2")).to_be_visible()


def test_a_head_that_was_not_analysed(visit: Visit) -> None:
    """One near it is open."""
    visit.open("#head=3.11", "")
    expect(visit.image("Heat map of head 4.5")).to_be_visible()


def test_whole_layers_and_colours(visit: Visit) -> None:
    """One cell per layer that was analysed; coloured by a measure the heads are those of the grid."""
    visit.open("#head=4.5&lens=rollout", "")
    assert visit.page.get_by_role("gridcell").evaluate_all(CELLS) == ["Layer 1", "Layer 4"]
    visit.page.get_by_role("combobox", name="Lens").select_option("weights")
    visit.page.get_by_role("combobox", name="colour by").select_option(label="Entropy")
    visit.head(1, 5).click()
    expect(visit.image("Heat map of head 1.5")).to_be_visible()
