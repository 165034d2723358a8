"""Attention to special tokens against a loop, and against facts of a real model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .heads import FEW, agree, average, cases, head_layer, measure, rows, sentence


def slow(layer: Any, map_: np.ndarray, queries: str) -> list[dict[str, float]]:
    """Column means of the special tokens, by loops in float64."""
    tokens, found = layer.axes.keys, []
    special = [i for i, token in enumerate(tokens) if token.kind == "special"]
    for head in map_.astype(np.float64):
        counted = [
            i
            for i, token in enumerate(tokens)
            if not np.isnan(head[i]).any() and (queries == "all" or token.kind != "special")
        ]
        received = {j: average(head[i][j] for i in counted) for j in special}
        last = [j for j in special if j > 0 and tokens[j].text == tokens[special[-1]].text]
        found.append(
            {
                "first": received.get(0, np.nan),
                "separator": max((received[j] for j in last), default=np.nan),
                "all": sum(received.values()) if received else np.nan,
            }
        )
    return found


@FEW
@given(cases(), st.sampled_from(["other", "all"]))
def test_against_a_loop(case: Any, queries: str) -> None:
    """Any mask, any text, signed maps and missing rows; 1e-6."""
    layer, lens, map_, _ = case
    agree(measure("special_tokens", layer, lens, map_, queries=queries), slow(layer, map_, queries), 1e-6)


def test_the_separator_that_gets_most_counts() -> None:
    """As in the paper: the larger of the two column means, not their sum. All special tokens together is the sum."""
    tokens = sentence("[CLS] a [SEP] b [SEP]")
    map_ = np.tile([0.1, 0.1, 0.2, 0.1, 0.5], (5, 1))
    found = measure("special_tokens", head_layer(map_[None], tokens))
    np.testing.assert_allclose([found["first"][0], found["separator"][0], found["all"][0]], [0.1, 0.5, 0.8], atol=1e-7)


def test_rows_of_special_tokens() -> None:
    """[SEP] looking at [SEP] counts only when all queries are asked for."""
    tokens = sentence("[CLS] a b [SEP]")
    map_ = np.eye(4)
    assert measure("special_tokens", head_layer(map_[None], tokens))["all"][0] == 0
    assert measure("special_tokens", head_layer(map_[None], tokens), queries="all")["all"][0] == pytest.approx(0.5)


def test_signed_maps_are_summed_with_their_signs() -> None:
    """Positive and negative entries cancel."""
    tokens = sentence("[CLS] a b [SEP]")
    map_ = np.zeros((1, 4, 4))
    map_[0, 1, 0], map_[0, 2, 0] = 0.5, -0.5
    assert measure("special_tokens", head_layer(abs(map_), tokens), "effective", map_)["first"][0] == pytest.approx(0)


def test_texts_without_special_tokens() -> None:
    """Nothing to say: NaN. A marker within a text that ends without one is no separator by its name alone, but the last special token is."""
    plain = sentence("a b c")
    found = measure("special_tokens", head_layer(rows(0, 2, np.ones((3, 3), bool)), plain))
    assert all(np.isnan(column).all() for column in found.values())
    only = sentence("[BOS] a b")
    found = measure("special_tokens", head_layer(rows(0, 2, np.ones((3, 3), bool)), only))
    assert np.isnan(found["separator"]).all()
    np.testing.assert_allclose(found["first"], found["all"], atol=1e-7)
