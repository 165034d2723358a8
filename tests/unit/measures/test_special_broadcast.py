"""The share of special tokens in a head's output, against loops over every contribution."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.core.declarations import NoParams
from headscope.lenses import LENSES
from headscope.measures import MEASURES

from ..lenses.heads import FEW, RULES, by_head, head_layer

MEASURE = MEASURES["special_broadcast"]


def share(layer, queries="other"):
    readings = {"norm": LENSES["norm"].read(layer, NoParams())}
    return MEASURE.compute(layer, "weights", readings, MEASURE.params(queries=queries))


@pytest.mark.parametrize("queries", ["other", "all"])
@pytest.mark.parametrize("rule", RULES)
@FEW
@given(n=st.integers(2, 20), special=st.sets(st.integers(0, 19), max_size=4), seed=st.integers(0, 99))
def test_is_the_share_of_norms(queries, rule, n, special, seed) -> None:
    """1e-5 of sums over all pairs in float64; NaN if no query is left."""
    layer = head_layer(n, rule, seed=seed, special=tuple(special))
    found = share(layer, queries)
    V, W, A = by_head(layer), layer.projection.double().numpy(), layer.weights.double().numpy()
    for head in range(4):
        part = total = 0.0
        for query in range(n):
            if queries == "other" and query in special:
                continue
            for key in range(n):
                length = A[head, query, key] * np.linalg.norm(V[head, key] @ W[head])
                total += length
                part += length if key in special else 0.0
        if total:
            assert found[head].item() == pytest.approx(part / total, abs=1e-5)
        else:
            assert math.isnan(found[head].item())


def test_ends_of_the_scale() -> None:
    """1 if every token is special, 0 if none is; a head that puts out nothing has no share."""
    assert share(head_layer(6, special=tuple(range(6))), "all").tolist() == pytest.approx([1] * 4)
    assert share(head_layer(6)).tolist() == [0] * 4
    dead = replace(head_layer(6, special=(0,)), values=torch.zeros(2, 6, 8))
    assert share(dead).isnan().all()
