"""What the page's examples for each lens say is true of the model they are made for."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headscope
from headscope.lenses import LENSES

TEXTS = Path(__file__).parents[2] / "frontend" / "src" / "lib" / "text"
Array = np.ndarray[Any, Any]
# The lenses that the longer text is an example of, and what null_share reads.
LONGER = ("weights", "effective", "null", "max-entropy")


@cache
def example(title: str) -> str:
    """The text of one of the page's examples."""
    found = re.search(rf"title: '{title}',.*?text: '(.*?)',\n", (TEXTS / "examples.ts").read_text(), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def read() -> Callable[..., headscope.Analysis]:
    """An example through every lens, or some of them, once."""
    model = headscope.load("minilm")

    @cache
    def of(title: str, *lenses: str) -> headscope.Analysis:
        return headscope.analyze(model, example(title), lenses=lenses or list(LENSES), measures=["null_share"])

    return of


def test_every_lens_has_one() -> None:
    lessons = (TEXTS / "lessons.ts").read_text()
    assert re.findall(r"lesson\(\s*'([\w-]+)'", lessons) == list(LENSES)


def test_weights(read: Callable[..., headscope.Analysis]) -> None:
    a = read("A pronoun")
    words = [token.text for token in a.tokens]
    row = a.maps["weights"][3, 1, words.index("it")]
    assert row[words.index("trophy")] > 0.5
    assert 0.2 < row[words.index("suitcase")] < 0.3


def test_effective(read: Callable[..., headscope.Analysis]) -> None:
    maps = read("Two banks").maps
    assert round(100 * maps["weights"][4, 5, :, 0].mean()) == 71
    assert np.abs(maps["effective"][4, 5, :, 0]).mean() < 0.05


def test_effective_simplex(read: Callable[..., headscope.Analysis]) -> None:
    maps = read("Two banks").maps
    np.testing.assert_allclose(maps["effective-simplex"][1, 11].sum(-1), 1, atol=1e-3)
    sums = maps["effective"][1, 11].sum(-1)
    assert np.median(sums) < 1 / 3


def test_null(read: Callable[..., headscope.Analysis]) -> None:
    a = read("A longer text", *LONGER)
    assert a.measures["null_share"]["weights"][4, 5] > 0.95
    columns = np.abs(a.maps["null"][4, 5]).mean(0)
    assert columns.argmax() == 0


def test_effective_published(read: Callable[..., headscope.Analysis]) -> None:
    maps = read("Two banks").maps
    apart = np.abs(maps["effective-published"] - maps["effective"]).sum((-1, -2))
    assert np.unravel_index(apart.argmax(), apart.shape) == (0, 2)


def test_max_entropy(read: Callable[..., headscope.Analysis]) -> None:
    maps = read("A longer text", *LONGER).maps

    def entropy(rows: Array) -> float:
        return float(-(rows * np.log(np.maximum(rows, 1e-12))).sum(-1).mean())

    assert entropy(maps["max-entropy"][3, 2]) > entropy(maps["weights"][3, 2]) + 0.2


def test_norm(read: Callable[..., headscope.Analysis]) -> None:
    maps = read("Two banks").maps
    assert round(100 * maps["weights"][1, 9, :, 0].mean()) == 62
    norms = maps["norm"][1, 9]
    assert (norms[:, 0] / norms.sum(-1)).mean() < 0.1


def diagonal(map_: Array) -> Array:
    return np.diagonal(map_) / map_.sum(-1)


def test_norm_residual(read: Callable[..., headscope.Analysis]) -> None:
    assert round(diagonal(read("Two banks").maps["norm-residual"][4, 0]).mean(), 1) == 0.6


def test_rollout(read: Callable[..., headscope.Analysis]) -> None:
    maps = read("Two banks").maps["rollout"][:, 0]
    own = [diagonal(map_).mean() for map_ in maps]
    assert own == sorted(own, reverse=True)
    assert 0.4 < maps[-1, :, 0].mean() < 0.5


def test_norm_rollout(read: Callable[..., headscope.Analysis]) -> None:
    maps = read("Two banks").maps
    own = [diagonal(map_).mean() for map_ in maps["norm-rollout"][:, 0]]
    assert own == sorted(own, reverse=True)
    assert maps["norm-rollout"][:, 0, :, 0].mean(-1).max() < 0.1


def test_alti(read: Callable[..., headscope.Analysis]) -> None:
    maps = read("Two banks").maps
    assert round(100 * maps["weights"][3].mean(0)[:, 0].mean()) == 41
    assert maps["alti"][3, 0, :, 0].mean() < 0.02


def test_value_zeroing(read: Callable[..., headscope.Analysis]) -> None:
    np.testing.assert_allclose(read("Two banks").maps["value-zeroing"][3, 0].sum(-1), 1, atol=1e-4)


def test_jump_map(read: Callable[..., headscope.Analysis]) -> None:
    map_ = read("Two banks").maps["jump-map"][0, 2]
    assert (map_ - np.diag(np.diagonal(map_))).sum(-1).mean() > 0.5
