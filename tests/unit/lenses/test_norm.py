"""Norms of contributions against the vectors themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.core.declarations import NoParams
from headscope.lenses import LENSES

from .heads import FEW, RULES, SIZES, VALUES, by_head, head_layer

TOLERANCE = 2e-6  # relative: each product in float32, no cancellation beyond that of the vectors


@pytest.mark.parametrize("rule", RULES)
@FEW
@given(n=SIZES, kind=VALUES, seed=st.integers(0, 99))
def test_is_the_length_of_every_contribution(rule: str, n: int, kind: str, seed: int) -> None:
    """A_ij v_j W_O as a vector of the model's width, in float64, and its length."""
    layer = head_layer(n, rule, kind=kind, seed=seed)
    found = LENSES["norm"].read(layer, NoParams()).map.numpy()
    V, W, A = by_head(layer), layer.projection.double().numpy(), layer.weights.double().numpy()
    for head in range(4):
        for key in range(n):
            vector = sum(V[head, key, m] * W[head, m] for m in range(8))
            scale = np.linalg.norm(V[head, key]) * np.linalg.norm(W[head], 2)
            for query in range(n):
                length = np.linalg.norm(A[head, query, key] * vector)
                assert abs(found[head, query, key] - length) <= TOLERANCE * A[head, query, key] * scale


def test_follows_the_scales_of_values_and_projection() -> None:
    """Twice the values or twice the projection: twice the map. A weight below zero still has a length."""
    layer = head_layer(12)
    once = LENSES["norm"].read(layer, NoParams()).map
    for twice in (
        replace(layer, values=2 * layer.values),
        replace(layer, projection_factors=-2 * layer.projection_factors),
    ):
        torch.testing.assert_close(LENSES["norm"].read(twice, NoParams()).map, 2 * once)
    torch.testing.assert_close(LENSES["norm"].read(replace(layer, weights=-layer.weights), NoParams()).map, once)


def test_reads_cross_attention() -> None:
    """Fewer queries than keys."""
    layer = head_layer(12, queries=5)
    assert LENSES["norm"].read(layer, NoParams()).map.shape == (4, 5, 12)
