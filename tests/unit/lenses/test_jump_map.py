"""The jump map of every head against the adjacency of that head alone, and where it has no meaning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.core.attention import Keys, Layer
from headscope.core.tokens import Axes, Token
from headscope.errors import Unsupported
from headscope.lenses.jump_map import JUMP_MAP, JumpMapParams


def layer(seed: int, n: int, groups: int, keys: Keys) -> Layer:
    draw = torch.Generator().manual_seed(seed)
    query, key = torch.randn(4, n, 3, generator=draw) * 3, torch.randn(groups, n, 3, generator=draw) * 3
    axes = Axes(*[tuple(Token("a", 0, 0, 1, 0, 0, "word") for _ in range(n))] * 2)
    empty = torch.empty(0)
    return Layer(0, (0, 1, 2, 3), empty, empty, empty, keys, 1e-7, axes, query, key)


def reference(Q, K, rho, signed):
    """A~ from its definition, one pair and one key at a time, in float64."""
    n, S = len(Q), Q @ K.T
    A = np.eye(n)
    for y in range(n):
        for z in range(n):
            if y == z:
                continue
            for j in range(n):
                strength = S[y, j] * S[z, j] / (Q.shape[1] * max(np.linalg.norm(K[j]), 1.0))
                if strength >= rho and not (signed and S[y, j] < 0):
                    A[y, z] += 1 / n
    scale = np.diag(A.sum(1) ** -0.5)
    return scale @ A @ scale


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 8),
    groups=st.sampled_from([1, 2, 4]),
    rho=st.sampled_from([0.5, 5.0]),
    signed=st.booleans(),
)
def test_is_the_adjacency_of_every_head(seed, n, groups, rho, signed):
    of = layer(seed, n, groups, Keys("all"))
    found = JUMP_MAP.read(of, JumpMapParams(rho=rho, signed=signed)).map.numpy()
    assert found.shape == (4, n, n)
    for head in range(4):
        Q, K = of.query[head].double().numpy(), of.key[head // (4 // groups)].double().numpy()
        assert np.abs(found[head] - reference(Q, K, rho, signed)).max() < 1e-6
    assert np.abs(found - found.swapaxes(1, 2)).max() < 1e-7
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6


@pytest.mark.parametrize("keys", [Keys("prefix"), Keys("mask", torch.ones(4, 4, dtype=torch.bool).tril())])
def test_hidden_tokens_are_refused(keys):
    with pytest.raises(Unsupported):
        JUMP_MAP.read(layer(0, 4, 4, keys), JumpMapParams())
