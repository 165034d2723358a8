"""Patterns of heads with rows of zeros, and of heads that are switched off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headscope
from headscope import MEASURES, Model
from headscope.core.attention import Layer
from headscope.measures.patterns import CLASSES
from tests.support.variants import variants

from .heads import FEW, Array, agree, cases, measure
from .test_patterns import ONE, N, class_of, slow_published, slow_scores


def emptied(layer: Layer, seed: int) -> tuple[Layer, Array]:
    """The layer with some rows of its weights set to 0, all of them in its first head, and these weights."""
    weights = layer.weights.clone()
    weights[torch.rand(weights.shape[:2], generator=torch.Generator().manual_seed(seed)) < 0.3] = 0
    weights[0] = 0
    return replace(layer, weights=weights), weights.numpy()


@FEW
@given(cases(), st.integers(0, 10**6))
def test_rows_of_zeros_are_left_out(case: Any, seed: int) -> None:
    """As of a head that is switched off: scores are those of the other rows, and a head without any has neither class nor sink, under any rules."""
    layer, weights = emptied(case[0], seed)
    found = measure("patterns", layer)
    agree(found, slow_scores(layer, "weights", weights, case[3]), 1e-5)
    assert CLASSES[int(found["class"][0])] == "unclassified"
    assert np.isnan([found[name][0] for name in ("sink", "sink_rows", "special", "diagonal", "margin")]).all()
    for rules in ("pasta", "voita", "clark"):
        published = measure("patterns", layer, rules=rules)
        expected = slow_published(rules, "weights", weights, layer.axes.keys)
        clear = ~(published["margin"] < 1e-6)
        assert [CLASSES[int(kind)] for kind in published["class"][clear]] == list(np.array(expected)[clear])
        assert CLASSES[int(published["class"][0])] == "unclassified"


@variants("rule", ["all", "prefix"])
def test_a_head_that_is_switched_off_is_unclassified(rule: str) -> None:
    """It is not vertical, although no weight is larger than those on special tokens."""
    assert class_of(np.zeros((N, N)), ONE, rule) == "unclassified"


@pytest.mark.parametrize("tokens", [6, 40])
def test_heads_of_a_model_that_are_switched_off(tiny: Model, tokens: int) -> None:
    """They have neither class nor null share, whether or not more tokens are read than the head is wide; the other heads have both."""
    off = {"name": "ablate", "heads": ["0.1", "1.0"], "how": "zero"}
    patterns = {"name": "patterns", "min_rows": 1, "first_row": 0}
    a = headscope.analyze(
        tiny, token_ids=list(range(tokens)), mechanism=off, measures=[patterns, "null_share", "null_share_rows"]
    )
    classes = a.measures["patterns"]["weights"][..., MEASURES["patterns"].columns.index("class")]
    expected = np.zeros((3, 4), bool)
    expected[0, 1] = expected[1, 0] = True
    np.testing.assert_array_equal(classes == CLASSES.index("unclassified"), expected)
    np.testing.assert_array_equal(np.isnan(a.measures["null_share"]["weights"]), expected)
    rows = np.isnan(a.measures["null_share_rows"]["weights"])
    np.testing.assert_array_equal(rows.all(-1), expected)
    np.testing.assert_array_equal(rows.any(-1), expected)
