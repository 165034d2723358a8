"""What is known of real heads comes out."""

from __future__ import annotations

import numpy as np
import pytest

import headscope
from headscope import MEASURES, Model

# 61 tokens of MiniLM.
TEXT = (
    "The quick brown fox jumps over the lazy dog while seventeen curious children watch from the old stone bridge, wondering whether the animal will ever "
    "stop. Later that evening, a storm rolled across the valley and the river carried away the small wooden boat that their late grandfather had built with "
    "care many years before."
)


@pytest.fixture(scope="module")
def facts(minilm: Model) -> headscope.Analysis:
    """One analysis of the text."""
    return headscope.analyze(minilm, TEXT, measures=("patterns", "special_tokens", "head_roles"))


def column(a: headscope.Analysis, measure: str, name: str) -> np.ndarray:
    """One named column of a measure of the weights, [L, H]."""
    values: np.ndarray = a.measures[measure]["weights"][..., MEASURES[measure].columns.index(name)]
    return values


def test_a_previous_token_head(facts: headscope.Analysis) -> None:
    """MiniLM's head 0.2 looks at the token before."""
    assert len(facts.tokens) == 61
    assert column(facts, "patterns", "diagonal_argmax")[0, 2] > 0.9
    assert column(facts, "patterns", "offset")[0, 2] == -1
    assert column(facts, "head_roles", "previous")[0, 2] > 0.9


def test_a_head_that_looks_at_the_first_token(facts: headscope.Analysis) -> None:
    """MiniLM's head 4.5 looks at [CLS]."""
    assert column(facts, "special_tokens", "first")[4, 5] > 0.6
    assert column(facts, "patterns", "special_argmax")[4, 5] > 0.9


def test_most_of_what_cls_gets_reaches_nothing(facts: headscope.Analysis) -> None:
    """In the middle layers [CLS] gets about two fifths of the weights, and a few thousandths of the effective attention."""
    weights, effective = (facts.maps[lens][1:5, :, :, 0].mean(axis=(1, 2)) for lens in ("weights", "effective"))
    assert ((weights > 0.35) & (weights < 0.5)).all()
    assert (np.abs(effective) < 0.005).all()
