"""Comparisons of two maps against plain loops and closed forms."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope.errors import InvalidRequest, Unsupported
from headscope.measures.compare import COMPARISONS, COSINE, JS_DIVERGENCE

from .layers import random_rows


def slow_cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    product = math.fsum(x * y for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True))
    return product / math.sqrt(math.fsum(x * x for x in a.ravel()) * math.fsum(y * y for y in b.ravel()))


def slow_divergence(a: NDArray[Any], b: NDArray[Any]) -> float:
    rows = []
    for p, q in zip(a.tolist(), b.tolist(), strict=True):
        total = 0.0
        for side, other in ((p, q), (q, p)):
            for x, y in zip(side, other, strict=True):
                x, y = x / math.fsum(side), y / math.fsum(other)
                total += x * math.log2(2 * x / (x + y)) / 2 if x else 0
        rows.append(total)
    return math.fsum(rows) / len(rows)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 2, 9, 20]), st.sampled_from(["all", "prefix", "window"]))
def test_against_loops(seed: int, n: int, rule: str) -> None:
    """Within 1e-12, per head; symmetric; in range."""
    a, b = (random_rows(seed + i, 2, 3, n, n, rule=rule) for i in range(2))
    for comparison, slow in ((COSINE, slow_cosine), (JS_DIVERGENCE, slow_divergence)):
        found = comparison(a, b)
        assert found.shape == (2, 3)
        expected = [[slow(a[i, j].astype(float), b[i, j].astype(float)) for j in range(3)] for i in range(2)]
        np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_allclose(found, comparison(b, a), atol=1e-12)
        assert comparison.range[0] <= found.min() <= found.max() <= comparison.range[1]


def test_large_maps_are_compared_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the numbers of whole maps, rows without a reading included, and a fraction of their memory."""
    a, b = (random_rows(seed, 2, 512, 512).astype(np.float32) for seed in range(2))
    a[0, 7], b[1, 300] = np.nan, np.nan
    for comparison in COMPARISONS.values():
        monkeypatch.setattr("headscope.measures.compare.PART", a.size)
        whole = comparison(a, b)
        monkeypatch.setattr("headscope.measures.compare.PART", 3 * 512)
        tracemalloc.start()
        found = comparison(a, b)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        np.testing.assert_allclose(found, whole, atol=1e-14)
        assert peak < a[0].nbytes


def test_closed_forms() -> None:
    """The same map: 1 and 0. Rows that share no key: 0 and 1. A map and its negative: -1. Rows need not sum to 1."""
    a = random_rows(0, 1, 6, 6)
    assert COSINE(a, 3 * a) == pytest.approx(1)
    assert JS_DIVERGENCE(a, 3 * a) == pytest.approx(0, abs=1e-15)
    eye = np.eye(6)
    assert COSINE(eye, np.roll(eye, 1, 1)) == 0
    assert JS_DIVERGENCE(eye, np.roll(eye, 1, 1)) == 1
    assert COSINE(a, -a) == pytest.approx(-1)


def test_rows_without_a_reading_are_left_out() -> None:
    """Rows of NaN in either map; NaN where nothing is left."""
    a, b = random_rows(0, 1, 5, 5), random_rows(1, 1, 5, 5)
    a[0, 1], b[0, 3] = np.nan, np.nan
    kept = [0, 2, 4]
    for comparison in COMPARISONS.values():
        np.testing.assert_allclose(comparison(a, b), comparison(a[:, kept], b[:, kept]), atol=1e-15)
        assert np.isnan(comparison(a, np.full_like(b, np.nan))).all()
        assert np.isnan(comparison(a, np.zeros_like(b))).all()


def test_what_makes_no_sense_is_refused() -> None:
    """Different shapes; a divergence of signed maps."""
    a = random_rows(0, 2, 5, 5)
    with pytest.raises(InvalidRequest, match="same shape"):
        COSINE(a, a[:1])
    with pytest.raises(Unsupported, match="cosine"):
        JS_DIVERGENCE(a, a - 0.1)
