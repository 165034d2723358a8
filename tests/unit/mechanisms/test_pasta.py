"""Vectors added to special tokens, entry by entry."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headscope.errors import InvalidRequest
from headscope.mechanisms.pasta import PASTA, PastaParams
from tests.support.variants import variants

from .scores import setting

SPECIAL = (0, 3)


def begin(vectors, layers=None, **more):
    return PASTA.begin(PastaParams(vectors=vectors, layers=layers), setting(special=SPECIAL, width=2, **more))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), layers=st.sampled_from([None, [0], [2], [2, 0], [0, 1, 2]]))
def test_adds_to_special_tokens_only(seed, layers):
    draw = torch.Generator().manual_seed(seed)
    vectors = torch.randn(len(layers or [0, 1]), 2, 2, generator=draw).double().tolist()
    pass_ = begin(vectors, layers)
    for layer in range(3):
        hidden = torch.randn(5, 2, generator=draw, dtype=torch.float64)
        before = hidden.clone()
        found = pass_.enter(layer, hidden)
        named = [0, 1] if layers is None else layers
        for token in range(5):
            for part in range(2):
                added = 0.0
                if layer in named and token in SPECIAL:
                    added = vectors[named.index(layer)][SPECIAL.index(token)][part]
                assert found[token, part].item() == before[token, part].item() + added
        assert torch.equal(hidden, before)


def test_without_vectors_nothing_changes():
    hidden = torch.randn(5, 2)
    assert begin([]).enter(0, hidden) is hidden


@variants(
    ("vectors", "layers"),
    [
        ([[[1.0, 2.0]]], None),  # one special token too few
        ([[[1.0, 2.0]] * 3], None),
        ([[[1.0], [2.0]]], None),  # too narrow
        ([[[1.0, 2.0]] * 2], [3]),  # no such layer
        ([[[1.0, 2.0]] * 2] * 4, None),
        ([[[1.0, 2.0]] * 2], [0, 1]),
        ([[[1.0, 2.0]] * 2] * 2, [1, 1]),
        ([], [0]),
    ],
)
def test_what_does_not_fit_is_refused(vectors, layers):
    with pytest.raises(InvalidRequest) as refused:
        begin(vectors, layers)
    assert refused.value.pointer.startswith("/mechanism/")


@pytest.mark.parametrize("vectors", [[[[float("nan"), 1.0]]], [[[]]], [[]], [1.0]])
def test_what_is_no_vector_is_refused(vectors):
    with pytest.raises(ValidationError):
        PastaParams(vectors=vectors)
