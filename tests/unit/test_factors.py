"""Factors of output projections: lengths against the projections themselves, remembered while the weights stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope
from headscope.capture.projection_factors import projection_factors
from headscope.capture.sites import split_projection

from .conftest import TINY

HEADS, WIDTH, MODEL_WIDTH = 4, 8, 24
LIKE = torch.zeros(())  # on the device of everything here


def projection(kind: str) -> torch.nn.Linear:
    module = torch.nn.Linear(HEADS * WIDTH, MODEL_WIDTH)
    weight = torch.randn(module.weight.shape, generator=torch.Generator().manual_seed(0))
    match kind:
        case "a head switched off":
            weight[:, :WIDTH] = 0
        case "dependent rows":
            weight[:, 1] = weight[:, 2]
        case "ill-conditioned":
            weight *= torch.logspace(0, -7, WIDTH).repeat(HEADS)
    module.weight.data = weight
    return module


@pytest.mark.parametrize("kind", ["random", "a head switched off", "dependent rows", "ill-conditioned"])
def test_lengths_are_those_behind_the_projection(kind: str) -> None:
    """Of random vectors, and of those that the projection makes shortest; relative to the longest that vectors of that length can get."""
    module = projection(kind)
    parts = split_projection(module, HEADS, LIKE).detach().double()
    found = projection_factors(module, HEADS, LIKE).detach()
    left, sigma, _ = torch.linalg.svd(parts)
    shortest = left[:, :, -1:].mT
    vectors = torch.cat([torch.randn(HEADS, 50, WIDTH, dtype=torch.float64), shortest], dim=1)
    scale = vectors.norm(dim=-1) * sigma[:, :1]
    difference = (vectors @ found).norm(dim=-1) - (vectors @ parts).norm(dim=-1)
    assert float((difference.abs() / scale.clamp_min(1e-300)).max()) < 3e-8


def test_a_projection_narrower_than_the_heads() -> None:
    module = torch.nn.Linear(HEADS * WIDTH, 5)
    vectors = torch.randn(HEADS, 50, WIDTH, dtype=torch.float64)
    expected = (vectors @ split_projection(module, HEADS, LIKE).detach().double()).norm(dim=-1)
    torch.testing.assert_close((vectors @ projection_factors(module, HEADS, LIKE).detach()).norm(dim=-1), expected)


def test_remembered_until_the_weights_change() -> None:
    """The same tensor again; other ones after a change of a single weight, in place and unseen by autograd, or of the number format."""
    module = projection("random")
    first = projection_factors(module, HEADS, LIKE)
    assert projection_factors(module, HEADS, LIKE) is first
    module.weight.data[3, 5] += 0.01
    second = projection_factors(module, HEADS, LIKE)
    assert not torch.equal(second, first)
    module.weight.data = module.weight.data.roll(WIDTH, dims=1)
    torch.testing.assert_close(projection_factors(module, HEADS, LIKE).abs(), second.roll(1, dims=0).abs())
    assert projection_factors(module.to(torch.bfloat16), HEADS, LIKE) is not second


def test_norms_follow_a_model_that_is_changed_in_memory() -> None:
    """A head's part of the projection set to zero between two analyses: its map is zero, the others of that layer are as before."""
    torch.manual_seed(0)
    model = headscope.load(TINY["bert"]())
    before = headscope.analyze(model, token_ids=[5, 6, 7, 8], lenses=("norm",)).maps["norm"]
    model.module.bert.encoder.layer[0].attention.output.dense.weight.data[:, 8:16] = 0
    after = headscope.analyze(model, token_ids=[5, 6, 7, 8], lenses=("norm",)).maps["norm"]
    assert before[0, 1].all()
    assert not after[0, 1].any()
    np.testing.assert_allclose(after[0, [0, 2, 3]], before[0, [0, 2, 3]], rtol=1e-6)
