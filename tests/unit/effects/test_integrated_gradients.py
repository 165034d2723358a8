"""Integrated gradients over attention: against the mean of differences along the path, in float64, and against ablation of whole layers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM, LlamaForCausalLM

import headscope
from headscope import Model
from headscope.effects import EFFECTS
from headscope.effects.integrated_gradients import places_on_path
from tests.support.extent import mostly_long
from tests.sweep.build import ids

from .test_attribution_patching import STEP, kind_of
from .test_contribution import FAMILIES, SMALL, TOKENS, _t5, perturbed
from .test_gradient_attention import Attention, Reference, loaded

METHOD = "integrated-gradients"


def check(model: Model, e: headscope.Effect, reference: Reference, steps: int, count: int) -> None:
    """Compare some entries with weight times mean slope, at the same places of the path, and sums with what is lost without the layer."""
    assert e.maps is not None
    random, scale = np.random.default_rng(0), float(np.abs(e.maps).max())
    for layer, (weights, number) in enumerate(zip(reference.weights, reference.numbers, strict=True)):
        weights = weights[..., : e.maps.shape[-1]]

        def target(share: float, step: float, at: tuple[int, ...] = (0, 0, 0), number: int = number) -> float:
            def change(found: torch.Tensor) -> torch.Tensor:
                found = share * found
                found[0][at] += step
                return found

            return reference.run(Attention(number, change))[0]

        for at in map(tuple, random.permutation(np.argwhere(weights.numpy() > 0))[:count]):
            slopes = [
                factor * (target(share, STEP, at) - target(share, -STEP, at)) / (2 * STEP)
                for share, factor in places_on_path(steps)
            ]
            expected = float(weights[at]) * sum(slopes)
            assert e.maps[(layer, *at)] == pytest.approx(expected, rel=1e-4, abs=1e-5 * scale), (layer, *at)
        lost = target(1, 0) - target(0, 0)
        assert e.completeness_error is not None
        error = e.maps[layer].sum(dtype=float) - lost
        assert e.completeness_error[layer] == pytest.approx(error, rel=1e-4, abs=1e-5 * (scale + abs(lost)))


@pytest.mark.parametrize("family", mostly_long(FAMILIES, "bert", "gemma2"))
def test_is_weight_times_mean_slope(family: str) -> None:
    torch.manual_seed(0)
    model = headscope.load(perturbed(FAMILIES[family]()))
    shared: Any = {"token_ids": TOKENS, "target": (7, 9), "position": 4, "dtype": "float64"}
    e = headscope.effect(model, **shared, method={"name": METHOD, "steps": 3})
    check(model, e, Reference(model, kind_of(model), {"input_ids": TOKENS}, 4), 3, 4)
    np.testing.assert_allclose(e.effects, e.maps.sum((2, 3)), rtol=1e-4, atol=1e-5 * np.abs(e.effects).max())


@pytest.mark.parametrize(
    "family", mostly_long(["gpt_neox", "olmo2", "albert", "qwen3_5_text", "gpt_oss"], "albert", "gpt_oss")
)
def test_in_other_architectures(family: str) -> None:
    """Parallel blocks, sandwich norms, shared layers, gates, and learned sinks."""
    model, tokens = loaded(family), ids(9, 1)
    method = {"name": METHOD, "steps": 3}
    e = headscope.effect(model, token_ids=tokens, target=(7, 9), position=5, method=method, dtype="float64")
    check(model, e, Reference(model, kind_of(model), {"input_ids": tokens}, 5), 3, 2)


@pytest.mark.parametrize("kind", mostly_long(["decoder", "cross"], "cross"))
def test_of_an_encoder_decoder(kind: str) -> None:
    torch.manual_seed(0)
    model, target = headscope.load(perturbed(_t5())), [0, 9, 31]
    shared: Any = {"token_ids": TOKENS, "target_ids": target, "target": (7, 9), "kind": kind, "dtype": "float64"}
    e = headscope.effect(model, **shared, method={"name": METHOD, "steps": 2})
    check(model, e, Reference(model, kind, {"input_ids": TOKENS, "decoder_input_ids": target}, 2), 2, 3)


@pytest.mark.parametrize("make", [BertForMaskedLM, LlamaForCausalLM])
def test_a_layer_sums_to_what_is_lost_without_it(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the path is smooth, because weights are as small as those of real models; also if places are computed one after the other."""
    torch.manual_seed(0)
    model = headscope.load(make(make.config_class(**SMALL)))
    shared: Any = {"token_ids": TOKENS, "target": (7, 9), "position": 4, "dtype": "float64"}
    e = headscope.effect(model, **shared, method=METHOD)
    assert e.completeness_error is not None
    for layer, error in enumerate(e.completeness_error):
        heads = [f"{layer}.{head}" for head in e.heads]
        together = headscope.effect(
            model, **shared, method={"name": "ablation", "how": "zero", "heads": heads}
        ).together
        assert together is not None
        assert e.effects[layer].sum() == pytest.approx(together.effect, rel=1e-4, abs=1e-7)
        assert e.effects[layer].sum() - error == pytest.approx(together.effect, rel=1e-4, abs=1e-7)
    monkeypatch.setattr(
        "headscope.analysis.effect_methods.gradients.EFFECTS", {METHOD: dataclasses.replace(EFFECTS[METHOD], tokens=1)}
    )
    again = headscope.effect(model, **shared, method=METHOD)
    np.testing.assert_allclose(again.maps, e.maps, atol=1e-6 * np.abs(e.maps).max())


@pytest.mark.long
def test_on_real_weights() -> None:
    """A trained model: nothing is missed, and single entries are right."""
    model = headscope.load("twin-gpt-softmax")
    text, target = "The keys to the cabinet", (" were", " was")
    e = headscope.effect(model, text, target=target, method={"name": METHOD, "steps": 8})
    assert e.completeness_error is not None
    np.testing.assert_allclose(e.completeness_error, 0, atol=1e-4 * np.abs(e.effects).max())
    ids = [token.id for token in e.tokens]
    check(model, e, Reference(model, "self", {"input_ids": ids}, len(ids) - 1, e.target.ids), 8, 1)
