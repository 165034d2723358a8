"""Measures that are sums over rows: whatever the rows that are read at once, they are those of the whole map."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.analysis.row_reader import _RowMeasure
from headscope.core.attention import Layer, Reading
from headscope.measures import MEASURES
from tests.support.variants import variants

from .heads import FEW, RULES, Array, allowed, cases, head_layer, rows, sentence

SUMMED = [name for name, one in MEASURES.items() if one.by_rows is not None and one.by_rows.summed]


def bare(layer: Layer) -> Layer:
    """A layer whose rows can be cut, though it has its weights only."""
    none = torch.zeros(3, layer.weights.shape[1], 0)
    return replace(layer, query=none, key=none, values=none, output=none)


def without_ties(map_: torch.Tensor) -> torch.Tensor:
    """A map in which no two offsets have the same mean weight: of equal ones, rounding decides which is larger."""
    return map_ * (1 - torch.rand(map_.shape, generator=torch.Generator().manual_seed(1)) / 8)


def by_rows(name: str, lens: str, layer: Layer, map_: torch.Tensor, cuts: list[int]) -> torch.Tensor:
    """The values of a measure with default parameters, read in parts of some rows."""
    one = _RowMeasure(MEASURES[name], lens, MEASURES[name].params())
    low, count = 0, map_.shape[1]
    for size in [*cuts, count]:
        queries = slice(low, min(low + size, count))
        if low < count:
            seen = layer.keys.extent(queries, map_.shape[2])
            part = layer.rows(queries, layer.weights[:, queries, :seen], layer.output[:, queries])
            reading = Reading(map_[:, queries, :seen], lens == "effective")
            one.add(one.by_rows.statistics(part, lens, {lens: reading}, one.params))
        low = queries.stop
    return one.values(layer, {})


@pytest.mark.parametrize("name", SUMMED)
@FEW
@given(cases(), st.lists(st.integers(1, 9), max_size=6))
def test_sums_by_rows(name: str, case: tuple[Layer, str, Array, Array], cuts: list[int]) -> None:
    """For special tokens, pairs of texts, missing rows, and signed maps."""
    layer, lens, map_, _ = case
    layer = bare(layer)
    maps = without_ties(torch.as_tensor(map_))
    whole = MEASURES[name].compute(layer, lens, {lens: Reading(maps, lens == "effective")}, MEASURES[name].params())
    found = by_rows(name, lens, layer, maps, cuts)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", SUMMED)
@FEW
@given(cases(), st.integers(0, 10**6), st.lists(st.integers(1, 9), max_size=6))
def test_rows_of_zeros_by_rows(name: str, case: tuple[Layer, str, Array, Array], seed: int, cuts: list[int]) -> None:
    """As of heads that are switched off, in part or whole."""
    weights = without_ties(case[0].weights)
    weights[torch.rand(weights.shape[:2], generator=torch.Generator().manual_seed(seed)) < 0.3] = 0
    weights[0] = 0
    layer = bare(replace(case[0], weights=weights))
    whole = MEASURES[name].compute(layer, "weights", {"weights": Reading(weights)}, MEASURES[name].params())
    found = by_rows(name, "weights", layer, weights, cuts)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5, equal_nan=True)


@variants("rule", RULES)
@variants("name", SUMMED)
def test_the_last_row_alone(name: str, rule: str) -> None:
    """Of a window to both sides, it sees no later key; what it is read for is still that of such a window."""
    names = ["[CLS]", "cat", "dog", "cat", "[SEP]"]
    layer = bare(head_layer(rows(0, 3, allowed(rule, len(names)), 2.0), sentence(names), rule))
    whole = MEASURES[name].compute(layer, "weights", {"weights": Reading(layer.weights)}, MEASURES[name].params())
    found = by_rows(name, "weights", layer, layer.weights, [len(names) - 1])
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5, equal_nan=True)
