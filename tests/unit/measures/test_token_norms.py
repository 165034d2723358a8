"""Norms by class of token against loops over every contribution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.core.declarations import NoParams
from headscope.core.tokens import Axes
from headscope.lenses import LENSES
from headscope.measures import MEASURES
from headscope.measures.norms import CLASSES

from ..lenses.heads import FEW, RULES, by_head, head_layer
from .heads import sentence

MEASURE = MEASURES["token_norms"]
NAMES = st.lists(st.sampled_from(["a", "cat", ".", ",", "##s"]), min_size=1, max_size=16)


def columns(layer):
    found = MEASURE.compute(layer, "norm", {"norm": LENSES["norm"].read(layer, NoParams())}, NoParams())
    return dict(zip(MEASURE.columns, found.double().numpy().T, strict=True))


def kind(tokens, place):
    """The class of a token, by name: sentence() calls special tokens [x]."""
    token = tokens[place]
    if token.kind == "special":
        return "first" if place == 0 else "separator"
    return "punct" if token.text in ".," else "other"


@pytest.mark.parametrize("rule", RULES)
@FEW
@given(names=NAMES, special=st.booleans(), seed=st.integers(0, 99))
def test_against_a_loop(rule, names, special, seed) -> None:
    """Weights, norms and lengths of every class, 1e-5; NaN for classes that are not there."""
    tokens = sentence(["[CLS]", *names, "[SEP]"] if special else names)
    n = len(tokens)
    layer = replace(head_layer(n, rule, seed=seed), axes=Axes(tokens, tokens))
    A, V, W = layer.weights.double().numpy(), by_head(layer), layer.projection.double().numpy()
    found = columns(layer)
    for name in CLASSES:
        places = [place for place in range(n) if kind(tokens, place) == name]
        for head in range(4):
            lengths = {j: float(np.linalg.norm(V[head, j] @ W[head])) for j in places}
            weight = sum(A[head, i, j] for i in range(n) for j in places) / n
            norm = sum(A[head, i, j] * lengths[j] for i in range(n) for j in places) / n
            mean = sum(lengths.values()) / len(places) if places else np.nan
            expected = (weight, norm, mean) if places else (np.nan,) * 3
            shown = [found[f"{part}_{name}"][head] for part in ("attention", "norm", "vector")]
            np.testing.assert_allclose(shown, expected, rtol=1e-5, atol=1e-6)


def test_classes_cover_every_token() -> None:
    """Attention to all classes is what a row sums to."""
    tokens = sentence("[CLS] a cat , sat . [SEP] b . [SEP]")
    layer = replace(head_layer(len(tokens)), axes=Axes(tokens, tokens))
    found = columns(layer)
    np.testing.assert_allclose(sum(found[f"attention_{name}"] for name in CLASSES), 1, atol=1e-6)


def test_a_token_that_nobody_attends_to_has_no_length() -> None:
    tokens = sentence("[CLS] a [SEP]")
    layer = replace(head_layer(3), axes=Axes(tokens, tokens))
    weights = torch.zeros_like(layer.weights)
    weights[..., 0] = 1
    found = columns(replace(layer, weights=weights))
    assert np.isnan(found["vector_other"]).all()
    assert np.isfinite(found["vector_first"]).all()
    assert not found["attention_other"].any()
