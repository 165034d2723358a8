"""The null share of heads with rows of zeros, against full decompositions, from whole maps and by rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.core.attention import Keys, Layer, Reading
from headscope.core.declarations import NoParams
from headscope.lenses import LENSES
from headscope.measures import MEASURES
from tests.support.variants import variants

from ..conftest import projected
from ..lenses.heads import FEW, RULES, Array, by_head, head_layer, mask_of

SIZES = [1, 5, 8, 9, 24, 60]


def emptied(n: int, rule: str, seed: int) -> Layer:
    """A layer with some rows of its weights set to 0, and all of them in its first head."""
    layer = head_layer(n, rule, seed=seed)
    left = (torch.rand(4, n, 1, generator=torch.Generator().manual_seed(seed)) > 0.3).float()
    left[0] = 0
    return replace(layer, weights=layer.weights * left, output=layer.output * left)


def slow(layer: Layer) -> tuple[list[float], list[list[float]]]:
    """||A - A_eff||² / ||A||² of every head and of every row; NaN for 0 / 0."""
    weights = layer.weights.double().numpy()
    lost = np.square(weights - projected(weights, by_head(layer), mask_of(layer))).sum(-1)
    norms = np.square(weights).sum(-1)
    by_row = [
        [part / whole if whole else np.nan for part, whole in zip(*rows, strict=True)]
        for rows in zip(lost, norms, strict=True)
    ]
    heads = zip(lost.sum(-1), norms.sum(-1), strict=True)
    return [part / whole if whole else np.nan for part, whole in heads], by_row


def values(name: str, layer: Layer) -> Array:
    """A measure of the whole maps."""
    readings = {"weights": Reading(layer.weights), "effective": LENSES["effective"].read(layer, NoParams())}
    found: Array = MEASURES[name].compute(layer, "weights", readings, NoParams()).numpy()
    return found


@variants("n", SIZES)
@variants("rule", RULES)
def test_rows_of_zeros_have_nothing_to_lose(n: int, rule: str) -> None:
    """NaN for them and for a head that has no others, by every way to project; the other rows are as they were."""
    layer = emptied(n, rule, n)
    heads, rows = slow(layer)
    assert np.isnan(heads[0])
    np.testing.assert_allclose(values("null_share", layer), heads, atol=1e-5)
    np.testing.assert_allclose(values("null_share_rows", layer), rows, atol=1e-5)


@FEW
@given(n=st.integers(9, 120), rule=st.sampled_from(["all", "prefix"]), seed=st.integers(0, 99), size=st.integers(1, 3))
def test_rows_of_zeros_by_rows(n: int, rule: str, seed: int, size: int) -> None:
    """However many rows are read at once."""
    layer = emptied(n, rule, seed)
    factoring = LENSES["effective"].factoring
    assert factoring is not None
    reader = factoring.rows(layer, None)
    if reader is None:
        assert rule == "prefix"
        return
    filled = replace(layer, query=torch.zeros(4, n, 0), key=torch.zeros(2, n, 0))
    parts: dict[str, list[torch.Tensor]] = {"null_share": [], "null_share_rows": []}
    low = 0
    while low < n:
        step = reader.first if low < reader.first else size * reader.multiple
        queries = slice(low, min(low + step, n))
        seen = n if rule == "all" else queries.stop
        rows = filled.rows(queries, layer.weights[:, queries, :seen], layer.output[:, queries])
        readings = {"effective": reader.read(rows)[0]}
        for name, found in parts.items():
            found.append(MEASURES[name].by_rows.statistics(rows, "weights", readings, NoParams()))
        low = queries.stop
    combine = MEASURES["null_share"].by_rows.combine
    heads, by_row = slow(layer)
    found = combine(layer, {}, torch.cat(parts["null_share"], 1), NoParams())
    np.testing.assert_allclose(found, heads, atol=1e-5)
    np.testing.assert_allclose(torch.cat(parts["null_share_rows"], 1), by_row, atol=1e-5)


def test_the_mask_of_a_query_makes_no_difference() -> None:
    """Any mask, not only an interval."""
    layer = emptied(24, "window", 3)
    mask = torch.from_numpy(mask_of(layer)).clone()
    mask[:, 0] = True
    layer = replace(layer, keys=Keys("mask", mask))
    heads, rows = slow(layer)
    np.testing.assert_allclose(values("null_share", layer), heads, atol=1e-5)
    np.testing.assert_allclose(values("null_share_rows", layer), rows, atol=1e-5)
