"""Hopfield attention against a running mean in float64, written out layer by layer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headscope.errors import Unsupported
from headscope.mechanisms.base import Pass
from headscope.mechanisms.hopfield import HOPFIELD, HopfieldParams

from .scores import logits, scores, setting, softmax

LAYERS = 4


def reference(layers, alpha, initial):
    """Weights of every layer [L, H, Q, K]."""
    state, result = None, []
    for number, of in enumerate(layers):
        own = logits(of)
        if number == 0:
            state = own if initial == "first" else (1 - alpha) * own
        else:
            state = alpha * state + (1 - alpha) * own
        result.append(softmax(of, state))
    return np.stack(result)


def run(layers, blocks=((0, 1, 2, 3),), **params):
    """The pass's weights of every layer, fed block by block."""
    pass_ = HOPFIELD.begin(HopfieldParams(**params), setting((4,) * len(layers)))
    result = []
    for of in layers:
        parts = []
        for heads in blocks:
            rows = list(heads)
            parts.append(
                pass_.attend(dataclasses.replace(of, heads=heads, query=of.query[rows], key=of.key[rows])).clone()
            )
        result.append(torch.cat(parts))
    return torch.stack(result).numpy()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 7),
    alpha=st.floats(0, 0.99),
    initial=st.sampled_from(["zero", "first"]),
    rule=st.sampled_from(["all", "prefix", "window"]),
    softcap=st.sampled_from([None, 2.0]),
)
def test_is_the_running_mean(seed, n, alpha, initial, rule, softcap):
    bias = torch.randn(1, n, n, generator=torch.Generator().manual_seed(seed))
    layers = [scores(seed, n, rule=rule, layer=layer, scale=2, softcap=softcap, bias=bias) for layer in range(LAYERS)]
    expected = reference(layers, alpha, initial)
    found = run(layers, alpha=alpha, initial=initial)
    assert np.abs(found - expected).max() < 1e-5
    assert np.abs(found.sum(-1) - 1).max() < 1e-5
    by_blocks = run(layers, blocks=((0,), (1, 2), (3,)), alpha=alpha, initial=initial)
    assert np.abs(by_blocks - found).max() < 1e-6


@pytest.mark.parametrize("rule", ["prefix", "window"])
def test_masks_never_leak(rule):
    layers = [scores(1, 6, rule=rule, layer=layer, scale=5) for layer in range(LAYERS)]
    found = run(layers, alpha=0.7)
    assert np.isfinite(found).all()
    assert (found[:, :, layers[0].blocked[0].numpy()] == 0).all()


def test_alpha_0_changes_nothing():
    layers = [scores(2, 6, rule="prefix", layer=layer) for layer in range(LAYERS)]
    for found, of in zip(run(layers, alpha=0.0), layers, strict=True):
        assert np.array_equal(found, Pass().attend(of).numpy())


def test_first_leaves_the_first_layer_as_it_is():
    layers = [scores(3, 6, layer=layer) for layer in range(2)]
    first, second = run(layers, alpha=0.5, initial="first")
    assert np.array_equal(first, Pass().attend(layers[0]).numpy())
    assert not np.allclose(second, Pass().attend(layers[1]).numpy())


def test_a_sink_keeps_its_share():
    layers = [scores(4, 5, layer=layer, sink=torch.ones(4, 1, 1)) for layer in range(2)]
    expected = reference(layers, 0.5, "zero")
    assert np.abs(run(layers) - expected).max() < 1e-6
    assert (expected.sum(-1) < 1).all()


def test_layers_of_another_number_of_tokens_are_refused():
    pass_ = HOPFIELD.begin(HopfieldParams(), setting())
    pass_.attend(scores(0, 5))
    with pytest.raises(Unsupported):
        pass_.attend(scores(0, 4, layer=1))


def test_layers_of_different_heads_are_refused():
    with pytest.raises(Unsupported):
        HOPFIELD.begin(HopfieldParams(), setting((4, 2)))


@pytest.mark.parametrize("params", [{"alpha": 1.0}, {"alpha": -0.1}, {"initial": "last"}, {"beta": 1}])
def test_parameters_out_of_range_are_refused(params):
    with pytest.raises(ValidationError):
        HopfieldParams(**params)


def test_half_precision_keeps_its_state_in_float32():
    layers = [scores(5, 5, layer=layer) for layer in range(3)]
    half = [dataclasses.replace(of, query=of.query.bfloat16(), key=of.key.bfloat16()) for of in layers]
    pass_ = HOPFIELD.begin(HopfieldParams(), setting())
    found = torch.stack([pass_.attend(of) for of in half])
    assert found.dtype == torch.bfloat16
    assert np.abs(found.float().numpy() - run(layers)).max() < 0.03
