"""Two analyses, head by head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headscope
from headscope import Model
from headscope.errors import InvalidRequest, Unknown

from .measures.test_compare import slow_cosine, slow_divergence


def test_heads_against_loops(tiny: Model, ids: Any) -> None:
    """The numbers of two analyses of the same tokens in other layers' order; signed lenses have a cosine only."""
    a, b = (
        headscope.analyze(tiny, token_ids=ids(15), lenses=("weights", "effective"), mechanism=mechanism)
        for mechanism in ("softmax", {"name": "hopfield", "alpha": 0.5})
    )
    found = headscope.compare(a, b)
    assert set(found) == set(headscope.COMPARISONS)
    one, other = a.maps["weights"].astype(float), b.maps["weights"].astype(float)
    for name, slow in (("cosine", slow_cosine), ("js_divergence", slow_divergence)):
        expected = [[slow(one[i, j], other[i, j]) for j in range(4)] for i in range(3)]
        np.testing.assert_allclose(found[name], expected, atol=1e-12)
    assert set(headscope.compare(a, b, lens="effective")) == {"cosine"}


def test_what_can_not_be_compared_is_refused(tiny: Model, ids: Any) -> None:
    """Another text altogether, other layers, a lens without maps, a lens that does not exist."""
    a = headscope.analyze(tiny, token_ids=ids(5), lenses=("weights",))
    other_text = headscope.analyze(tiny, token_ids=ids(12), lenses=("weights",))
    other_layers = headscope.analyze(tiny, token_ids=ids(5), lenses=("weights",), layers=[1])
    no_maps = headscope.analyze(tiny, token_ids=ids(5), lenses=("weights",), maps=False)
    with pytest.raises(InvalidRequest, match="tokens"):
        headscope.compare(a, other_text)
    with pytest.raises(InvalidRequest, match="layers"):
        headscope.compare(a, other_layers)
    for held, lens in ((no_maps, "weights"), (a, "effective")):
        with pytest.raises(InvalidRequest, match="maps"):
            headscope.compare(a, held, lens=lens)
    with pytest.raises(Unknown):
        headscope.compare(a, a, lens="nonsense")
