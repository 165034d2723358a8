"""Distances of attention and largest weights against loops, and on heads made for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from headscope.core.attention import Reading
from headscope.core.declarations import NoParams
from headscope.measures import MEASURES
from headscope.measures.distance import STARTS

from .heads import FEW, agree, cases, head_layer, measure, rows, sentence


def slow(map_: np.ndarray) -> list[dict[str, float]]:
    """Entry by entry, in float64."""
    found = []
    for head in np.nan_to_num(map_.astype(np.float64)):
        total = first = second = 0.0
        shares = [0.0] * len(STARTS)
        for i, row in enumerate(head):
            for j, weight in enumerate(row):
                total, first, second = total + weight, first + weight * abs(i - j), second + weight * (i - j) ** 2
                shares[sum(start <= abs(i - j) for start in STARTS) - 1] += weight
        bins = {f"from_{start}": share / total for start, share in zip(STARTS, shares, strict=True)}
        found.append({"mean": first / total, "square": second / total, **bins})
    return found


@FEW
@given(cases())
def test_distance_against_a_loop(case: Any) -> None:
    """Any mask; 2e-6 of the number."""
    layer, lens, map_, _ = case
    if lens == "weights":
        agree(measure("qk_distance", layer, lens, map_), slow(map_), 2e-6)


def largest(layer: Any, map_: Any = None) -> np.ndarray:
    reading = Reading(layer.weights if map_ is None else torch.as_tensor(map_))
    return MEASURES["max_activation"].compute(layer, "weights", {"weights": reading}, NoParams()).numpy()


@FEW
@given(cases())
def test_largest_weight_against_a_loop(case: Any) -> None:
    """Without the first row and the first column; NaN where nothing is left."""
    layer, lens, map_, _ = case
    if lens != "weights":
        return
    for head, found in zip(map_, largest(layer), strict=True):
        inner = [weight for row in head[1:] for weight in row[1:]]
        assert found == max(inner) if inner else np.isnan(found)


def test_a_head_that_looks_one_back() -> None:
    tokens = sentence("[CLS] a cat sat . [SEP]")
    map_ = np.zeros((1, 6, 6), np.float32)
    map_[0, 0, 0] = 1
    map_[0, np.arange(1, 6), np.arange(5)] = 1
    found = measure("qk_distance", head_layer(map_, tokens))
    assert found["mean"][0] == pytest.approx(5 / 6)
    assert found["square"][0] - found["mean"][0] ** 2 == pytest.approx(5 / 6 - 25 / 36)
    assert (found["from_0"][0], found["from_1"][0]) == (pytest.approx(1 / 6), pytest.approx(5 / 6))
    assert largest(head_layer(map_, tokens)) == 1


def test_rows_without_a_reading() -> None:
    """They count for nothing; a head without any has no number."""
    tokens = sentence("[CLS] a cat [SEP]")
    map_ = rows(3, 2, np.ones((4, 4), bool))
    missing = map_.copy()
    missing[0, 2], missing[1] = np.nan, np.nan
    layer = head_layer(map_, tokens)
    found = measure("qk_distance", layer, "max-entropy", missing)
    assert found["mean"][0] == pytest.approx(slow(missing[:1])[0]["mean"], rel=1e-6)
    assert np.isnan(found["mean"][1])
    assert np.isnan(largest(layer, missing)[1])
