"""Long texts in the library: maps that are computed when they are read, saved as factors, and shown on pages as the server's are."""

from __future__ import annotations

import operator
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headscope
from headscope import Model
from headscope.api.documents import standalone
from headscope.core import factored_map
from headscope.core.factored_map import FactoredMap
from headscope.errors import BudgetExceeded
from headscope.library import analysis

from .conftest import TINY
from .test_page_factors import responses

ASKED: dict[str, Any] = {
    "token_ids": [5 + 7 * place % 90 for place in range(40)],
    "lenses": ("weights", "effective", "null"),
}
EVERY = slice(None)
INDICES: list[Any] = [
    0,
    -1,
    (1, 2),
    (slice(None), 0),
    (1, 2, 3, 4),
    (..., 3),
    (..., slice(2, 30, 3), slice(-5, None)),
    (0, 1, slice(None, None, -1)),
    ([0, 1], [2, 0]),
    ([0, 1], EVERY, 4),
    (0, EVERY, [3, 1]),
    (0, 1, [3, 1]),
    (..., [3, 1], EVERY),
    (EVERY, 0, ..., 0, [1, 2]),
    np.True_,
    (0, np.array([True, False, True, True])),
    (None, 0),
    (np.arange(2)[:, None], [[0, 1]]),
    np.s_[1:, ::2, 5:9, 8:2:-1],
    (),
]


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return headscope.load(TINY["gpt2"]())


@pytest.fixture(scope="module")
def long(model: Model) -> headscope.Analysis:
    """An analysis whose maps are kept as factors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "SMALL_MAP", 0)
        return headscope.analyze(model, **ASKED)


@pytest.fixture(scope="module")
def short(model: Model) -> headscope.Analysis:
    """The same analysis with arrays."""
    return headscope.analyze(model, **ASKED)


@pytest.fixture
def viewer(tmp_path: Path) -> Path:
    """A folder with a viewer that does nothing."""
    folder = tmp_path / "page" / "viewer"
    folder.mkdir(parents=True)
    (folder / "viewer.js").write_text("")
    (folder / "viewer.css").write_text("")
    return folder.parent


def test_long_texts_are_kept_as_factors(long: headscope.Analysis, short: headscope.Analysis) -> None:
    assert (long.id, list(long.maps)) == (short.id, list(short.maps))
    for lens, expected in short.maps.items():
        maps = long.maps[lens]
        assert isinstance(maps, FactoredMap)
        assert isinstance(expected, np.ndarray)
        assert (maps.shape, maps.dtype, maps.ndim, maps.size) == (expected.shape, expected.dtype, 4, expected.size)
        assert len(maps) == len(expected)
        np.testing.assert_allclose(maps, expected, atol=1e-5)
        assert np.abs(maps - expected).max() < 1e-5
        assert maps.mean() == pytest.approx(expected.mean(), abs=1e-5)


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_an_index_is_that_of_an_array(long: headscope.Analysis, index: Any) -> None:
    maps = long.maps["weights"]
    expected = np.asarray(maps)[index]
    assert np.shape(maps[index]) == np.shape(expected)
    np.testing.assert_allclose(maps[index], expected, atol=1e-7)


@pytest.mark.parametrize("index", [9, (0, 9), (0, 0, 40), (0, 0, 0, -41), (0, 0, 0, 0, 0), "weights", 1.0])
def test_an_index_that_does_not_exist(long: headscope.Analysis, index: Any) -> None:
    with pytest.raises(IndexError):
        long.maps["weights"][index]


def test_only_what_is_read_is_computed(long: headscope.Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factored_map, "SMALL", 4 * 40)
    monkeypatch.setattr(factored_map, "free_memory", lambda: 4 * 40 * 40)
    maps = long.maps["effective"]
    assert maps[1, 2].shape == (40, 40)
    with pytest.raises(BudgetExceeded, match="fewer heads or rows"):
        maps.sum()
    assert not hasattr(maps, "no_such_attribute")
    with pytest.raises(TypeError):
        maps[0, 0] = 1  # type: ignore[index]


def test_saved_and_opened(long: headscope.Analysis, short: headscope.Analysis, tmp_path: Path) -> None:
    long.save(tmp_path / "long.safetensors")
    short.save(tmp_path / "short.safetensors")
    for again in (headscope.open(tmp_path / "long.safetensors"), pickle.loads(pickle.dumps(long))):
        assert again == long
        assert list(again.maps) == list(long.maps)
        for lens, maps in again.maps.items():
            assert isinstance(maps, FactoredMap)
            np.testing.assert_array_equal(maps, long.maps[lens])
    headscope.open(tmp_path / "long.safetensors").save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "long.safetensors").read_bytes()


def test_by_words_and_compared(long: headscope.Analysis, short: headscope.Analysis) -> None:
    groups = [[1, 2], [7, 3]]
    for lens, expected in short.by(groups).maps.items():
        np.testing.assert_allclose(long.by(groups).maps[lens], expected, atol=1e-5)
    assert headscope.compare(long, short)["cosine"].min() > 1 - 1e-6


def test_pages_are_those_of_the_server(
    long: headscope.Analysis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, viewer: Path
) -> None:
    """They have the factors of the chosen heads, whether the analysis was made or opened; too many are refused with both sizes."""
    monkeypatch.setattr(standalone, "page_folder", lambda: viewer)
    monkeypatch.setattr(standalone, "MOST", {**standalone.MOST, "float32": 0})
    long.save(tmp_path / "long.safetensors")
    for place, a in enumerate((long, headscope.open(tmp_path / "long.safetensors"))):
        headscope.show(a, heads=["0.1", "1.0"]).save(tmp_path / f"{place}.html")
    pages = [(tmp_path / f"{place}.html").read_text("utf-8") for place in range(2)]
    assert pages[0] == pages[1]
    names = [name for name in responses(pages[0]) if name.startswith(("/maps", "/factors"))]
    assert names == [f"/factors/{lens}/{place}" for place in ("0.1", "1.0") for lens in ASKED["lenses"]]
    headscope.export_site(tmp_path / "site", [tmp_path / "long.safetensors"])
    assert "/factors/null/1.3" in responses((tmp_path / "site" / "long.html").read_text("utf-8"))
    monkeypatch.setattr(standalone, "MOST_BYTES", 20_000)
    for write in (headscope.show(long).save, lambda path: headscope.export_site(path, [long])):
        with pytest.raises(BudgetExceeded, match=r"12 heads .* the limit is 0.02 MB"):
            write(tmp_path / "refused")
        assert not (tmp_path / "refused").exists()
    assert "12 heads" in headscope.show(long).to_html()


def test_maps_that_are_computed_are_not_changed(long: headscope.Analysis) -> None:
    """In-place operators say so; a membership test is that of an array."""
    maps = long.maps["weights"]
    for change in (
        lambda: operator.iadd(maps, 1),
        lambda: operator.imul(maps, maps),
        lambda: np.add(maps, 1, out=maps),
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    assert 1 in maps
    assert 2 not in maps
