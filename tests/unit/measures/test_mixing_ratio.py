"""The mixing ratio against plain loops in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings

from headscope.core.attention import Layer
from headscope.core.declarations import NoParams
from headscope.lenses import norm_residual
from headscope.measures import norms
from tests.unit.lenses.whole import Shape, added, random_layer, shapes, single


def ratio(layer: Layer) -> torch.Tensor:
    """The measure as the engine computes it."""
    readings = {"norm-residual": norm_residual.read(layer, NoParams())}
    return norms.mixing_ratio(layer, "norm-residual", readings, NoParams())


@settings(max_examples=25, deadline=None)
@given(shapes())
def test_ratio_is_of_the_norm_of_the_sum(shape: Shape) -> None:
    """||sum of the others|| / (||sum of the others|| + ||own||); 0 for a single token."""
    layer, expected = random_layer(shape), []
    for i, vectors in enumerate(added(layer)):
        own = np.linalg.norm(vectors[i])
        mixed = np.linalg.norm(sum((vector for j, vector in enumerate(vectors) if j != i), np.zeros_like(vectors[i])))
        expected.append(mixed / (mixed + own))
    np.testing.assert_allclose(ratio(layer), expected, atol=1e-12)
    found = ratio(single(layer))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, atol=2e-6)
    if shape.n == 1:
        assert found.tolist() == [0]


def test_ratio_of_tokens_that_stay_themselves() -> None:
    """0 where heads look at the token itself only; NaN where there is nothing on either side."""
    layer = random_layer(Shape(5, 2, 1, 3, "all", None, special=False, seed=1))
    still = torch.eye(5, dtype=torch.float64).expand(2, 5, 5)
    stream = replace(layer.stream, projected=None)
    layer = replace(layer, weights=still, output=still @ layer.values, stream=stream)
    np.testing.assert_allclose(ratio(layer), np.zeros(5), atol=1e-15)
    nothing = replace(
        layer,
        values=torch.zeros_like(layer.values),
        output=torch.zeros_like(layer.output),
        stream=replace(stream, before=torch.zeros_like(layer.stream.before)),
    )
    assert ratio(nothing).isnan().all()
