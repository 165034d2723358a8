"""The null part against a full singular value decomposition of every row's values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.core.declarations import NoParams
from headscope.lenses import LENSES

from .heads import EPSILON, FEW, RULES, SIZES, VALUES, Array, by_head, head_layer, mask_of

TOLERANCE = 1e-5  # relative to the norm of the row of weights


def null_part(row: Array, V: Array) -> Array:
    """The projection of a row on {x : x V = 0}, by its definition."""
    U, sigma, _ = np.linalg.svd(V, full_matrices=True)
    rank = int((sigma > sigma[0] * max(V.shape) * EPSILON).sum())
    return sum((np.outer(U[:, k], U[:, k]) @ row for k in range(rank, len(row))), np.zeros(len(row)))


@pytest.mark.parametrize("rule", RULES)
@FEW
@given(n=SIZES, kind=VALUES, seed=st.integers(0, 99))
def test_is_the_projection_on_the_null_space(rule: str, n: int, kind: str, seed: int) -> None:
    """Row by row on the keys that the row may see; multiplies to nothing; nothing on forbidden keys."""
    layer = head_layer(n, rule, kind=kind, seed=seed)
    found = LENSES["null"].read(layer, NoParams())
    assert found.signed
    weights, V, mask = layer.weights.double().numpy(), by_head(layer), mask_of(layer)
    for head in range(4):
        for query in range(n):
            seen = mask[query]
            row = found.map[head, query].numpy()
            expected = null_part(weights[head, query, seen], V[head, seen])
            scale = np.linalg.norm(weights[head, query])
            assert np.linalg.norm(row[seen] - expected) <= TOLERANCE * scale
            assert not row[~seen].any()
            assert np.linalg.norm(row @ V[head]) <= TOLERANCE * scale * max(np.linalg.norm(V[head], 2), 1e-30) * 3
            assert found.kept[head, query] == pytest.approx(np.square(expected / scale).sum(), abs=TOLERANCE)


@pytest.mark.parametrize("rule", RULES)
def test_adds_up_to_the_weights(rule: str) -> None:
    """null + effective = weights, and the two are orthogonal."""
    layer = head_layer(30, rule)
    null, effective = (LENSES[name].read(layer, NoParams()).map.double() for name in ("null", "effective"))
    np.testing.assert_allclose(null + effective, layer.weights.double(), atol=1e-7)
    np.testing.assert_allclose((null * effective).sum(-1), 0, atol=1e-6)


def test_is_nothing_up_to_the_head_width_and_everything_for_values_of_zero() -> None:
    """Exactly 0 where effective attention is the weights, exactly the weights where it is 0."""
    assert not LENSES["null"].read(head_layer(8), NoParams()).map.any()
    dead = head_layer(12, kind="zero")
    found = LENSES["null"].read(dead, NoParams())
    assert found.rank.tolist() == [0, 0, 8, 8]
    assert (found.map[:2] == dead.weights[:2]).all()
