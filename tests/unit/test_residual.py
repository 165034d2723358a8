"""The residual stream around attention in the forms that models give it: what attention adds, and to what, against the model's own tensors."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import headscope
from headscope import Model
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Layer
from tests.support.variants import variants
from tests.sweep.build import build, ids

NEEDS = frozenset({"values", "projection", "residual"})
LIMIT = 1e-6

# Model type -> what attention's result is added to, from the module of the layer, its number, and its input [n, d].
Stream = Callable[[Any, int, Tensor], Tensor]
STREAMS: dict[str, Stream] = {
    "beit": lambda block, number, x: x,  # the result has a gain that is a parameter of the layer
    "internvl_vision": lambda block, number, x: x,
    "granite_docling_text": lambda block, number, x: x,  # a number
    "esmc": lambda block, number, x: x,
    "minicpm3": lambda block, number, x: x,
    "beam": lambda block, number, x: x * sqrt(1 - 1 / block.attn_residual_add_idx),  # numbers on both
    "doge": lambda block, number, x: x * block.input_residual,  # a gain on the stream
    "zaya": lambda block, number, x: (
        x * block.post_attention_residual_scale.residual_scale
    ),  # by a module that adds both
    "muse_spark_text": lambda block, number, x: x * _alpha(block.post_attention_residual_gate),
    "nanochat": lambda block, number, x: x,  # a normalisation without a weight
    "falcon_h1": lambda block, number, x: x,  # beside it other tokens come in through a recurrent module
}


def _alpha(gate: Any) -> Tensor:
    share = torch.sigmoid(-gate.gate / gate.temperature)
    return (share * (2 - share)).clamp_min(gate.eps).sqrt()


def layers_of(model: Model, dtype: str) -> tuple[list[Layer], list[Tensor], list[Tensor]]:
    """Every layer of a pass; what each one's block was given, and what its normalisation after the sum was given, [n, d]."""
    sites = examine(model, dtype)
    chosen, parts = sites.of("self"), dict(model.module.named_modules())
    assert "residual" not in sites.missing("self")
    entered, summed, found = list[Tensor](), list[Tensor](), list[Layer]()

    def watch(name: str | None, where: list[Tensor]) -> Any:
        def hook(_: Any, args: Any, kwargs: Any) -> None:
            where.append((args[0] if args else kwargs["hidden_states"])[0].clone())

        return parts[str(name)].register_forward_pre_hook(hook, with_kwargs=True)

    handles = [watch(site.block, entered) for site in chosen]
    handles += [watch(site.norm, summed) for site in chosen if site.norm]
    if model.facts.kind == "vision":
        encoded = model.encode(image=np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8))
    else:
        encoded = model.encode(token_ids=ids(11, 4))
    with model.using(dtype):
        capture(model, encoded, sites, CaptureSpec(lambda layer: None, found.append, NEEDS))
    for handle in handles:
        handle.remove()
    return found, entered, summed


@torch.inference_mode()
@variants("name", STREAMS, short=4)
def test_is_what_the_model_adds_up(name: str) -> None:
    """The stream is the model's own, and with what the heads write, biases included, it sums to what the next part reads."""
    model = headscope.load(build(name).module)
    found, entered, summed = layers_of(model, "float64")
    chosen, parts = examine(model, "float64").of("self"), dict(model.module.named_modules())
    for number, (layer, site, x) in enumerate(zip(found, chosen, entered, strict=True)):
        stream = layer.stream
        before = STREAMS[name](parts[str(site.block)], number, x)
        limit = LIMIT * max(1.0, float(before.abs().max()))
        torch.testing.assert_close(stream.before.to(before), before, rtol=0, atol=limit)
        if site.norm is not None:
            added = layer.project(layer.output) + stream.bias
            branch = stream.branch_norm
            given = added if branch is None else branch.linear(added, branch.scale[:, None]) + branch.shift
            limit = LIMIT * max(1.0, float(summed[number].abs().max()))
            torch.testing.assert_close(given + before, summed[number].to(given.dtype), rtol=0, atol=limit)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
@torch.inference_mode()
@pytest.mark.parametrize(
    ("name", "after"),
    [("bert", True), ("mobilebert", True), ("modernbert", False), ("modernbert-decoder", False), ("llama", False)],
)
def test_whether_the_stream_is_normalised(name: str, after: bool) -> None:
    """After the sum, or before it: also where attention reads the stream of the first layer as it is, or a narrower copy of it in every layer."""
    model = headscope.load(build(name).module)
    found, _, summed = layers_of(model, "float64")
    parts, sites = dict(model.module.named_modules()), examine(model, "float64").of("self")
    for layer, site, given in zip(found, sites, summed, strict=True):
        assert (layer.stream.norm is not None) == after
        if (norm := layer.stream.norm) is not None:
            with model.using("float64"):
                expected = parts[str(site.norm)](given[None].double())[0]
            torch.testing.assert_close(
                norm.linear(given, norm.scale[:, None]) + norm.shift, expected, rtol=0, atol=LIMIT
            )


def test_beside_a_recurrent_module() -> None:
    """What other tokens bring through it is neither attention's nor the token's own: the sum ends without it, and the multiplier counts."""
    module = build("falcon_h1").module
    for block in module.model.layers:
        block.attn_out_multiplier, block.ssm_out_multiplier = 0.4, 0.7
    for site in examine(headscope.load(module)).of("self"):
        assert (site.norm, site.branch_norm) == (None, None)
        assert site.gain is not None
        assert site.gain.number == pytest.approx(0.4, rel=1e-5)


def test_of_layers_that_attend_twice() -> None:
    """Both calls of attention have their own stream: what the normalisation before each was given."""
    model = headscope.load(build("longcat_flash").module)
    expected, found = list[Tensor](), list[Layer]()
    for block in model.module.model.layers:
        for part in block.input_layernorm:
            part.register_forward_pre_hook(lambda _, args: expected.append(args[0][0].clone()))
    sites = examine(model)
    expected.clear()
    capture(model, model.encode(token_ids=ids(11, 4)), sites, CaptureSpec(lambda layer: None, found.append, NEEDS))
    assert len(found) == 2 * len(model.module.model.layers)
    for layer, stream in zip(found, expected, strict=True):
        torch.testing.assert_close(layer.stream.before, stream, rtol=0, atol=1e-5 * float(stream.abs().max()))


def test_of_several_streams() -> None:
    """Gemma 3n averages the stream with a low-rank copy of it, which is made token by token: both are the token's own."""
    model = headscope.load(build("gemma3n_text").module)
    streams, copies, found = list[Tensor](), list[Tensor](), list[Layer]()
    for block in model.module.model.layers:
        block.input_layernorm.register_forward_pre_hook(lambda _, args: streams.append(args[0][0].clone()))
        block.laurel.register_forward_hook(lambda _, args, output: copies.append(output[0].clone()))
    sites = examine(model)
    streams.clear()
    copies.clear()
    capture(model, model.encode(token_ids=ids(11, 4)), sites, CaptureSpec(lambda layer: None, found.append, NEEDS))
    for layer, stream, copy in zip(found, streams, copies, strict=True):
        expected = (stream + copy) / sqrt(2)
        torch.testing.assert_close(layer.stream.before, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["inkling_text", "zamba2", "hy_v4"])
def test_without_a_sum(name: str) -> None:
    """A convolution over tokens after attention, no sum at all, and several streams at once: the stream is refused, the projection is not."""
    missing = examine(headscope.load(build(name).module)).missing("self")
    assert "does not reach a sum" in missing["residual"]
    assert "projection" not in missing
