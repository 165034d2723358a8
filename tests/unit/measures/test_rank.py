"""Rank-like numbers against a plain singular value decomposition and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope.errors import Unsupported
from headscope.measures.rank import RANK, RankParams, ranks

from .layers import EPSILON, layer_of, random_rows, readings


def slow(matrix: NDArray[Any]) -> list[float]:
    """Numerical, stable, effective, participation, one singular value after the other."""
    sigma = [float(s) for s in np.linalg.svd(matrix.astype(np.float64), compute_uv=False)]
    if sigma[0] == 0:
        return [0.0] * 4
    shares = [s / math.fsum(sigma) for s in sigma]
    energy = [(s / sigma[0]) ** 2 for s in sigma]
    return [
        sum(s > sigma[0] * max(matrix.shape) * EPSILON for s in sigma),
        math.fsum(energy),
        math.exp(-math.fsum(p * math.log(p) for p in shares if p > 0)),
        math.fsum(energy) ** 2 / math.fsum(e * e for e in energy),
    ]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([1, 2, 7, 33]),
    st.sampled_from(["all", "prefix", "window"]),
    st.sampled_from([1e-20, 1.0]),
)
def test_maps_against_loops(seed: int, n: int, rule: str, scale: float) -> None:
    """Within 1e-8 of the definitions, whatever the size of the entries."""
    maps = random_rows(seed, 3, n, n + 2 * (rule == "all"), rule=rule) * np.float32(scale)
    maps[1, n // 2 :] = maps[1, :1]  # equal rows
    layer = layer_of(maps)
    found = RANK.compute(layer, "weights", readings(layer), RankParams()).numpy()
    np.testing.assert_allclose(found, [slow(head) for head in maps], rtol=1e-8)


def test_closed_forms() -> None:
    """Uniform maps have 1 in all columns, the identity n, zeros 0; a causal map has full numerical rank; rows without a reading give NaN."""
    n = 12
    maps = np.stack([np.full((n, n), 1 / n), np.eye(n), np.zeros((n, n)), random_rows(0, n, n, rule="prefix")])
    maps = np.concatenate([maps, np.full((1, n, n), np.nan)]).astype(np.float32)
    found = ranks(torch.as_tensor(maps), EPSILON).numpy()
    np.testing.assert_allclose(found[:3], [[1] * 4, [n] * 4, [0] * 4], atol=1e-5)
    assert found[3, 0] == n
    assert np.isnan(found[4]).all()
    assert (found[:4, 1:3] <= found[:4, :1] + 1e-5).all()  # no summary exceeds the rank


def test_sigma_1_of_weights_is_at_least_1() -> None:
    """Rows that sum to 1 map the vector of ones to itself, so the stable rank is at most the squared Frobenius norm."""
    maps = torch.as_tensor(random_rows(1, 4, 20, 20))
    assert (ranks(maps, EPSILON)[:, 1] <= maps.double().square().sum((1, 2)) + 1e-6).all()


def test_the_output_has_at_most_the_rank_of_the_head_width() -> None:
    """of: output decomposes weights @ values, for every lens alike."""
    weights = random_rows(2, 2, 20, 20)
    output = weights @ np.random.default_rng(0).normal(size=(2, 20, 4)).astype(np.float32)
    layer = layer_of(weights, output=output)
    found = [
        RANK.compute(layer, lens, readings(layer, effective=weights), RankParams(of="output"))
        for lens in ("weights", "effective")
    ]
    assert torch.equal(*found)
    np.testing.assert_allclose(found[0], [slow(head) for head in output], rtol=1e-8)
    assert (found[0][:, 0] == 4).all()


def test_outputs_that_were_not_captured_are_refused() -> None:
    layer = layer_of(random_rows(2, 2, 20, 20))
    with pytest.raises(Unsupported, match="map"):
        RANK.compute(layer, "weights", readings(layer), RankParams(of="output"))


def test_half_precision_decides_no_rank() -> None:
    """The numerical rank is NaN, the others stand."""
    found = ranks(torch.as_tensor(random_rows(0, 2, 10, 10)), torch.finfo(torch.bfloat16).eps)
    assert found[:, 0].isnan().all()
    assert found[:, 1:].isfinite().all()
