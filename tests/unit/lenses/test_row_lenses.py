"""Lenses that read some rows after others, against whole maps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope import LENSES
from headscope.core.attention import Layer, ScoreTerms
from headscope.lenses.base import RowLens
from tests.support.extent import extent

from ..test_rowspace import hard_values, make_layer

Array = NDArray[Any]
KEYS = 37  # of a map that are read at once


def read_rows(lens: str, layer: Layer, size: int) -> tuple[RowLens, Array, Array] | None:
    """Read a lens of a layer that has its weights by rows: the map and what it keeps."""
    factoring = LENSES[lens].factoring
    assert factoring is not None
    reader = factoring.rows(layer, None)
    if reader is None:
        return None
    query, key = (torch.zeros(count, layer.weights.shape[1], 0) for count in (4, 2))
    filled = replace(layer, query=query, key=key, terms=ScoreTerms(1.0))
    found, kept, low = torch.zeros_like(layer.weights), torch.zeros(layer.weights.shape[:2]), 0
    while low < layer.weights.shape[1]:
        step = reader.first if low < reader.first else size * reader.multiple
        queries = slice(low, min(low + step, layer.weights.shape[1]))
        seen = layer.keys.extent(queries, layer.weights.shape[2])
        part = filled.rows(queries, layer.weights[:, queries, :seen], layer.output[:, queries])
        reading, of_factors = reader.read(part)
        for key in range(0, seen, KEYS):
            keys = slice(key, min(key + KEYS, seen))
            out = torch.full((4, queries.stop - low, keys.stop - key), torch.nan)
            found[:, queries, keys] = reader.map(part, of_factors, keys, out)
        kept[:, queries] = reading.kept
        low = queries.stop
    return reader, found.numpy(), kept.numpy()


@settings(max_examples=extent(80, 30), deadline=None, derandomize=True)
@given(
    n=st.integers(17, 200),
    rule=st.sampled_from(["all", "prefix"]),
    lens=st.sampled_from(["effective", "null"]),
    kind=st.sampled_from(["plain", "repeated tokens", "dead dimension", "ill-conditioned", "huge last tokens", "all zero"]),
    size=st.integers(1, 4),
)  # fmt: skip
def test_hard_values(n: int, rule: str, lens: str, kind: str, size: int) -> None:
    """Dependent and badly scaled values: rows are those of the whole map, however many are read at once."""
    layer = make_layer(n, rule, values=hard_values(kind, n, 16))
    found, expected = read_rows(lens, layer, size), LENSES[lens].read(layer, None)
    if found is None:
        assert rule == "prefix"
        return
    reader, maps, kept = found
    facts = reader.facts()
    np.testing.assert_allclose(maps, expected.map, atol=1e-5)
    np.testing.assert_allclose(kept, expected.kept, atol=1e-5)
    assert torch.equal(facts.rank, expected.rank)
    np.testing.assert_allclose(facts.leverage, expected.leverage, atol=1e-6)
