"""Gradient × attention: against differences of the target for small changes of single weights after the softmax, in float64, with the model's own attention."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

import headscope
from headscope import Model
from headscope.capture import examine
from headscope.errors import Unsupported
from tests.support.extent import mostly_long
from tests.support.variants import variants
from tests.sweep.build import build, ids

from ..conftest import TINY
from .test_attribution_patching import STEP, Double, kind_of
from .test_contribution import FAMILIES, SMALL, TOKENS, _t5, perturbed

GRADIENT = "gradient-attention"


def loaded(family: str) -> Model:
    """A tiny model of the family, with experts that know float64."""
    module = build(family).module
    module.set_experts_implementation("eager")
    return headscope.load(module)


class Attention(Double):
    """Keeps what every softmax over keys returns, [H, Q, K], and changes one of them by its number."""

    def __init__(self, number: int = -1, change: Callable[[torch.Tensor], torch.Tensor] = lambda weights: weights):
        super().__init__()
        self.number, self.change, self.weights = number, change, list[torch.Tensor]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs)
        if func not in (torch.nn.functional.softmax, torch.softmax, torch.Tensor.softmax) or found.dim() != 4:
            return found
        self.weights.append(found[0])
        return self.change(found) if len(self.weights) - 1 == self.number else found


class Reference:
    """The target of a model in float64, as a function of its weights."""

    def __init__(self, model: Model, kind: str, inputs: Any, place: int | None, pair: tuple[int, ...] = (7, 9)) -> None:
        self.module = copy.deepcopy(model.module).double()
        self.module.set_attn_implementation("eager")
        self.inputs, self.place, self.pair = inputs, place, pair
        sites = examine(model)
        self.numbers = [number for number, site in enumerate(sites.all) if site.kind == sites.of(kind)[0].kind]  # type: ignore[arg-type]
        self.weights = [self.run(Attention())[1][number] for number in self.numbers]

    def run(self, attention: Attention) -> tuple[float, list[torch.Tensor]]:
        """The target, and the weights of all layers."""
        with torch.no_grad(), attention:
            given = {name: torch.tensor([one]) for name, one in self.inputs.items()}
            logits = self.module(**given, use_cache=False).logits[0]
        row = logits if self.place is None else logits[self.place]
        return float(row[self.pair[0]] - row[self.pair[1]]), attention.weights

    def slope(self, layer: int, *entry: int) -> float:
        """By how much the target grows with one weight."""

        def target(step: float) -> float:
            def change(weights: torch.Tensor) -> torch.Tensor:
                weights = weights.clone()
                weights[0][entry] += step
                return weights

            return self.run(Attention(self.numbers[layer], change))[0]

        return (target(STEP) - target(-STEP)) / (2 * STEP)

    def check(self, maps: Any, count: int) -> None:
        """Compare some entries, drawn among those that are not masked, and see that the others are 0."""
        random = np.random.default_rng(0)
        scale = float(np.abs(maps).max())
        for layer, weights in enumerate(self.weights):
            weights = weights[..., : maps.shape[-1]]  # a learned sink has a column of its own
            assert (maps[layer][weights.numpy() == 0] == 0).all()
            for entry in random.permutation(np.argwhere(weights.numpy() > 0))[: count // len(self.weights)]:
                expected = float(weights[tuple(entry)]) * self.slope(layer, *entry)
                assert maps[(layer, *entry)] == pytest.approx(expected, rel=1e-4, abs=1e-5 * scale), (layer, *entry)


@pytest.mark.parametrize("family", mostly_long(FAMILIES, "bert", "gemma2"))
def test_is_weight_times_slope(family: str) -> None:
    """Of single weights; their sums are what attribution patching estimates of zeroing a head, and signs are those that were asked for."""
    torch.manual_seed(0)
    model = headscope.load(perturbed(FAMILIES[family]()))
    shared: Any = {"token_ids": TOKENS, "target": (7, 9), "position": 4, "dtype": "float64"}
    e = headscope.effect(model, **shared, method=GRADIENT)
    assert e.maps is not None
    assert e.maps.shape == (*e.effects.shape, len(TOKENS), len(TOKENS))
    Reference(model, kind_of(model), {"input_ids": TOKENS}, 4).check(e.maps, 24)
    np.testing.assert_allclose(e.effects, e.maps.sum((2, 3)), rtol=1e-4, atol=1e-5 * np.abs(e.effects).max())
    zeroed = headscope.effect(model, **shared, method={"name": "attribution-patching", "of": "zero"})
    np.testing.assert_allclose(e.effects, zeroed.effects, rtol=1e-4, atol=1e-5 * np.abs(e.effects).max())
    assert e.target == zeroed.target
    for sign, expected in (("clamp", e.maps.clip(0)), ("drop", np.abs(e.maps))):
        found = headscope.effect(model, **shared, method={"name": GRADIENT, "sign": sign})
        np.testing.assert_array_equal(found.maps, expected)
        np.testing.assert_allclose(found.effects, expected.sum((2, 3)), rtol=1e-5)


@variants("family", ["gpt_neox", "olmo2", "albert", "qwen3_5_text", "gpt_oss", "youtu", "bitnet"], short=3)
def test_in_other_architectures(family: str) -> None:
    """Parallel blocks, sandwich norms, shared layers, gates, learned sinks, and values of another width than keys."""
    model, tokens = loaded(family), ids(9, 1)
    e = headscope.effect(model, token_ids=tokens, target=(7, 9), position=5, method=GRADIENT, dtype="float64")
    Reference(model, kind_of(model), {"input_ids": tokens}, 5).check(e.maps, 12)


@pytest.mark.parametrize("kind", mostly_long(["decoder", "cross"], "cross"))
def test_of_an_encoder_decoder(kind: str) -> None:
    torch.manual_seed(0)
    model, target = headscope.load(perturbed(_t5())), [0, 9, 31]
    shared: Any = {"token_ids": TOKENS, "target_ids": target, "target": (7, 9), "kind": kind, "dtype": "float64"}
    e = headscope.effect(model, **shared, method=GRADIENT)
    Reference(model, kind, {"input_ids": TOKENS, "decoder_input_ids": target}, 2).check(e.maps, 18)
    with pytest.raises(Unsupported, match="through the decoder"):
        headscope.effect(model, **{**shared, "kind": "encoder"}, method=GRADIENT)


def test_of_a_class() -> None:
    """Of a whole input: every query counts."""
    torch.manual_seed(0)
    model = headscope.load(perturbed(BertForSequenceClassification(BertConfig(**SMALL, num_labels=3))))
    e = headscope.effect(model, token_ids=TOKENS, target=(2, 0), method=GRADIENT, dtype="float64")
    Reference(model, kind_of(model), {"input_ids": TOKENS}, None, (2, 0)).check(e.maps, 12)


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_in_blocks_of_heads(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that does not fit at once changes nothing, and the model is left as it was."""
    shared: Any = {"token_ids": TOKENS, "target": 7, "position": 4, "method": GRADIENT}
    whole = headscope.effect(tiny, **shared)
    monkeypatch.setattr("headscope.capture.interface.BLOCK_BYTES", 1)
    parts = headscope.effect(tiny, **shared)
    np.testing.assert_allclose(parts.maps, whole.maps, atol=1e-6 * np.abs(whole.maps).max())
    assert all(one.grad is None for one in tiny.module.parameters())


def test_what_has_no_gradient_is_refused() -> None:
    """A model without an output head, and one that cuts its stream from what comes before: maps would be zero."""
    torch.manual_seed(0)
    with pytest.raises(Unsupported, match="no head that returns logits"):
        headscope.effect(headscope.load(BertModel(BertConfig(**SMALL))), token_ids=TOKENS, method=GRADIENT)
    module = FAMILIES["llama"]()
    module.model.norm.register_forward_hook(lambda part, args, output: output.detach())
    with pytest.raises(Unsupported, match="no gradient flows"):
        headscope.effect(headscope.load(module), token_ids=TOKENS, target=7, method=GRADIENT)
