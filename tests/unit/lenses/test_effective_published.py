"""Effective attention as published, against its released steps one by one on the padded input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.core.attention import Layer
from headscope.errors import InvalidRequest, Unsupported
from headscope.lenses import LENSES

from .heads import FEW, Array, head_layer

LENS = LENSES["effective-published"]


def padded_layer(n: int, pad_to: int, seed: int = 0) -> Layer:
    layer = head_layer(n, seed=seed, groups=4)
    rest = torch.randn(4, pad_to - n, 8, generator=torch.Generator().manual_seed(seed + 7))
    return replace(layer, padded_values=torch.cat([layer.values, rest], dim=1))


def published(weights: Array, padded: Array) -> Array:
    """weights [H, Q, K], padded [H, P, D] -> [H, Q, K]: pad the map, subtract the projection, blank the padding's columns, crop."""
    heads, size, _ = padded.shape
    n = weights.shape[-1]
    decomposed = [np.linalg.svd(padded[head], full_matrices=True) for head in range(heads)]
    bound = np.finfo(np.float32).eps * heads
    start = max(sum(1 for one in sigma if one > bound) for _, sigma, _ in decomposed)
    result = []
    for head in range(heads):
        A = np.zeros((size, size))
        A[:n, :n] = weights[head]
        null = decomposed[head][0][:, start:]
        mapped = A - (null @ (A @ null).T).T
        mapped[:, n:] = 0
        result.append(mapped[:n, :n])
    return np.array(result)


@FEW
@given(n=st.integers(1, 20), extra=st.integers(0, 12), seed=st.integers(0, 99))
def test_repeats_the_released_steps(n: int, extra: int, seed: int) -> None:
    """float32 against float64: 1e-5."""
    layer = padded_layer(n, n + extra, seed)
    found = LENS.read(layer, LENS.params(pad_to=n + extra))
    expected = published(layer.weights.double().numpy(), layer.padded_values.double().numpy())
    np.testing.assert_allclose(found.map.numpy(), expected, atol=1e-5)
    assert found.signed


def test_some_heads_are_read_as_if_all_were() -> None:
    """One bound and one rank for the whole layer, whichever of its heads are asked for."""
    layer = padded_layer(12, 20)
    layer.padded_values[3, :, 4:] = 0  # of lower rank than the others
    params = LENS.params(pad_to=20)
    whole = LENS.read(layer, params).map
    for chosen in ({1}, {0, 3}, {3}):
        part = LENS.read(layer.select(frozenset(chosen)), params).map
        np.testing.assert_allclose(part, whole[sorted(chosen)], atol=1e-6)


def test_differs_from_the_definition_where_padding_counts() -> None:
    """6 tokens and 8 dimensions: by the definition nothing changes. Padded to 24 tokens the map does, and its output is no longer the head's."""
    layer = padded_layer(6, 24)
    found = LENS.read(layer, LENS.params(pad_to=24)).map
    assert (found - layer.weights).norm() > 0.1 * layer.weights.norm()
    assert (found @ layer.values - layer.output).norm() > 0.05 * layer.output.norm()
    alone = padded_layer(20, 20)
    np.testing.assert_allclose(
        LENS.read(alone, LENS.params(pad_to=20)).map, LENSES["effective"].read(alone, LENS.params()).map, atol=1e-5
    )


def test_refuses_what_the_published_code_could_not_read() -> None:
    """More tokens than it pads to, and inputs that can't be padded."""
    with pytest.raises(InvalidRequest, match="at most pad_to = 10 tokens"):
        LENS.read(padded_layer(12, 20), LENS.params(pad_to=10))
    with pytest.raises(Unsupported, match="padded input"):
        LENS.read(head_layer(12), LENS.params())
