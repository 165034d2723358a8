"""Residual ratio and token similarity against plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope.core.declarations import NoParams
from headscope.errors import Unsupported
from headscope.measures import hidden
from headscope.measures.hidden import RESIDUAL_RATIO, TOKEN_SIMILARITY, TokenSimilarityParams

from .layers import layer_of, random_rows, states_layer


def states(seed: int, n: int, d: int) -> NDArray[Any]:
    generator = np.random.default_rng(seed)
    return (generator.normal(size=(n, d)) + 2 * generator.normal(size=d)).astype(np.float32)


def slow_norm(matrix: list[list[float]]) -> float:
    columns = [math.fsum(abs(row[c]) for row in matrix) for c in range(len(matrix[0]))]
    return math.sqrt(max(columns) * max(math.fsum(abs(x) for x in row) for row in matrix))


def slow_residual(X: list[list[float]]) -> float:
    mean = [math.fsum(row[c] for row in X) / len(X) for c in range(len(X[0]))]
    return slow_norm([[x - m for x, m in zip(row, mean, strict=True)] for row in X]) / slow_norm(X)


def slow_cosines(X: NDArray[Any], centred: bool) -> list[float]:
    X = X.astype(np.float64)
    X = X - X.mean(0) if centred else X
    found = []
    for i in range(len(X)):
        for j in range(i + 1, len(X)):
            lengths = math.sqrt(math.fsum(X[i] ** 2)) * math.sqrt(math.fsum(X[j] ** 2))
            if lengths:
                found.append(math.fsum(X[i] * X[j]) / lengths)
    return found


def similarity(X: NDArray[Any], **params: Any) -> NDArray[Any]:
    return TOKEN_SIMILARITY.compute(states_layer(X), "weights", {}, TokenSimilarityParams(**params)).numpy()


def residual(X: NDArray[Any]) -> float:
    found = RESIDUAL_RATIO.compute(states_layer(X), "weights", {}, NoParams())
    assert found.shape == ()
    return found.item()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 20))
def test_residual_ratio_against_loops(seed: int, n: int, d: int) -> None:
    """Within 1e-12."""
    X = states(seed, n, d)
    assert residual(X) == pytest.approx(slow_residual(X.astype(np.float64).tolist()), rel=1e-12, abs=1e-15)


def test_residual_ratio_closed_forms() -> None:
    """One token or equal tokens: 0. A mean of zero: 1. All zero: no answer. It does not depend on the scale of the states."""
    X = states(0, 10, 6)
    assert residual(X[:1]) == 0
    assert residual(np.repeat(X[:1], 5, 0)) == pytest.approx(0, abs=1e-15)
    assert residual(np.concatenate([X, -X])) == pytest.approx(1, rel=1e-12)
    assert math.isnan(residual(np.zeros((3, 4), np.float32)))
    assert residual(X * 1024) == pytest.approx(residual(X), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 30), st.integers(2, 20), st.booleans())
def test_token_similarity_against_loops(seed: int, n: int, d: int, centred: bool) -> None:
    """Summary within 1e-9, every pair in its bin."""
    X = states(seed, n, d)
    if n > 3:
        X[1] = 0 if not centred else X[1]
    found, cosines = similarity(X, centred=centred), np.array(slow_cosines(X, centred))
    low, median, high = np.quantile(cosines, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(found[1:5], [median, cosines.mean(), low, high], atol=1e-9)
    bins = [
        sum(-1 + k / 20 <= min(c, 1 - 1e-12) + 1e-12 < -1 + (k + 1) / 20 for c in cosines) / len(cosines)
        for k in range(40)
    ]
    np.testing.assert_allclose(found[5:], bins, atol=1e-12)
    assert found[0] == pytest.approx(-1 + (int(np.argmax(bins)) + 0.5) / 20)
    assert found[5:].sum() == pytest.approx(1)


def test_token_similarity_edges() -> None:
    """One token, only zeros, or nothing but the mean: no answer. Equal tokens: the last bin. Opposite ones: the first."""
    X = states(0, 8, 5)
    assert np.isnan(similarity(X[:1])).all()
    assert np.isnan(similarity(np.zeros((4, 5), np.float32))).all()
    assert np.isnan(similarity(np.repeat(X[:1], 4, 0), centred=True)).all()
    equal = similarity(np.repeat(X[:1], 4, 0))
    assert equal[-1] == 1
    assert equal[0] == pytest.approx(0.975)
    assert similarity(np.stack([X[0], -X[0]]))[5] == 1


def test_pairs_are_drawn_evenly_without_repetition_and_always_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn pairs are pairs of the whole, spread over all rows, and give nearly its numbers; blocks of rows change nothing."""
    X = torch.randn(60, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    units = X / X.norm(dim=1, keepdim=True)
    whole = hidden.pairwise(units, 10**6)
    expected = torch.stack([units[i] @ units[j] for i in range(60) for j in range(i + 1, 60)])
    torch.testing.assert_close(whole, expected, rtol=0, atol=1e-12)
    places = hidden._drawn(len(whole), 700)
    assert len(set(places.tolist())) == 700
    assert places.diff().max() <= 2 * math.ceil(len(whole) / 700)
    some = hidden.pairwise(units, 700)
    torch.testing.assert_close(some, whole[places], rtol=0, atol=1e-12)
    monkeypatch.setattr(hidden, "ROWS", 7)
    torch.testing.assert_close(hidden.pairwise(units, 10**6), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(hidden.pairwise(units, 700), some, rtol=0, atol=1e-12)
    np.testing.assert_allclose(similarity(X.numpy(), pairs=700)[1:5], similarity(X.numpy())[1:5], atol=0.03)


def test_states_that_were_not_captured_are_refused() -> None:
    layer = layer_of(random_rows(0, 1, 4, 4))
    with pytest.raises(Unsupported):
        RESIDUAL_RATIO.compute(layer, "weights", {}, NoParams())
