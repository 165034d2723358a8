"""ALTI-Logit: contributions by source, traced to the input by the shares of ALTI in the layers below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import headscope
from headscope.errors import Unsupported
from tests.support.extent import mostly_long
from tests.sweep.build import build, ids

from .test_contribution import FAMILIES, SOURCES, TOKENS, _t5, perturbed

MODELS: dict[str, Callable[[], Any]] = {
    **{name: lambda make=make: perturbed(make()) for name, make in FAMILIES.items()},
    "gpt_neox": lambda: build("gpt_neox").module,
}


@pytest.mark.parametrize("family", mostly_long(MODELS, "bert", "llama", "gpt_neox"))
def test_is_contributions_times_rollout(family: str) -> None:
    """In float64, layer by layer; the first layer reads the input itself, and the parts of every head sum to its contribution."""
    torch.manual_seed(0)
    model = headscope.load(MODELS[family]())
    tokens = TOKENS if family in FAMILIES else ids(9, 1)
    shared: Any = {"token_ids": tokens, "target": (7, 9), "position": 4, "dtype": "float64"}
    e, plain = (headscope.effect(model, **shared, method=method) for method in ("alti-logit", SOURCES))
    alone = headscope.analyze(
        model, token_ids=tokens, lenses=[{"name": "alti", "rollout": False}], measures=[], dtype="float64"
    ).maps["alti"][:, 0]
    below = np.eye(len(tokens))
    for layer, sources in enumerate(plain.sources):
        np.testing.assert_allclose(e.sources[layer], sources @ below, atol=1e-5 * np.abs(plain.effects).max())
        below = alone[layer].astype(float) @ below
    np.testing.assert_array_equal(e.effects, plain.effects)
    np.testing.assert_array_equal(e.maps[:, :, 4], e.sources)
    assert np.count_nonzero(np.delete(e.maps, 4, axis=2)) == 0
    np.testing.assert_allclose(e.sources.sum(-1), e.effects, atol=1e-5 * np.abs(e.effects).max())


def test_a_decoder_that_reads_an_encoder_is_refused() -> None:
    with pytest.raises(Unsupported, match="also reads its encoder"):
        headscope.effect(_t5(), token_ids=TOKENS, target_ids=[0, 9], target=7, method="alti-logit")
