"""Direct path patching: against separate passes with plain hooks, which hold everything between the two heads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

import headscope
from headscope import Model
from headscope.capture import examine
from headscope.errors import InvalidRequest, Unsupported
from tests.support.extent import mostly_long
from tests.support.variants import variants
from tests.sweep.build import build, ids

from ..conftest import TINY
from .test_contribution import FAMILIES, TOKENS, _t5, perturbed
from .test_patching import OTHER

Change = Callable[[torch.Tensor], torch.Tensor]
# The output projection of a layer, what is added after it, and the modules that make queries, keys and values.
PARTS = {
    "gpt2": ("transformer.h.{}.attn.c_proj", "transformer.h.{}.mlp", ("transformer.h.{}.attn.c_attn",) * 3),
    "bert": (
        "bert.encoder.layer.{}.attention.output.dense",
        "bert.encoder.layer.{}.output.dense",
        tuple(f"bert.encoder.layer.{{}}.attention.self.{one}" for one in ("query", "key", "value")),
    ),
    "llama": (
        "model.layers.{}.self_attn.o_proj",
        "model.layers.{}.mlp",
        tuple(f"model.layers.{{}}.self_attn.{one}_proj" for one in "qkv"),
    ),
}
PARTS["gemma2"] = PARTS["llama"]
SIDES = ("query", "key", "value")


class Hooked:
    """A model whose modules read or give something else."""

    def __init__(self, module: Any) -> None:
        self.module = copy.deepcopy(module).double()
        self.read: dict[str, torch.Tensor] = {}
        self.gave: dict[str, torch.Tensor] = {}

    def run(self, tokens: list[int], reads: Mapping[str, Change], gives: Mapping[str, Change]) -> torch.Tensor:
        handles = []
        for name, part in self.module.named_modules():

            def before(part: Any, args: Any, name: str = name) -> Any:
                if not args or not isinstance(args[0], torch.Tensor):
                    return None
                given = reads[name](args[0]) if name in reads else args[0]
                self.read[name] = given
                return given, *args[1:]

            def after(part: Any, args: Any, output: Any, name: str = name) -> Any:
                output = gives[name](output) if name in gives else output
                self.gave[name] = output
                return output

            handles += [part.register_forward_pre_hook(before), part.register_forward_hook(after)]
        with torch.no_grad():
            logits: torch.Tensor = self.module(torch.tensor([tokens]), use_cache=False).logits[0]
        for handle in handles:
            handle.remove()
        return logits


def columns(family: str, side: str, head: int) -> slice:
    """The part of the output of the module that makes it, for a head of 8 dimensions of 4, which share keys and values in twos in some models."""
    own = head if side == "query" or family in ("gpt2", "bert") else head // 2
    start = 32 * SIDES.index(side) if family == "gpt2" else 0
    return slice(start + 8 * own, start + 8 * (own + 1))


def into(where: slice, value: torch.Tensor) -> Change:
    """Write a value into some columns."""

    def change(given: torch.Tensor) -> torch.Tensor:
        given = given.clone()
        given[..., where] = value[..., where]
        return given

    return change


def slow(module: Any, family: str, source: list[int], changed: list[int], receiver: tuple[int, int], side: str) -> Any:
    """Return the logits of the changed text, and [l, H] of it with each path."""
    projection, added, makers = PARTS[family]
    (layer, head), maker = receiver, makers[SIDES.index(side)].format(receiver[0])
    theirs, base = Hooked(module), Hooked(module)
    theirs.run(source, {}, {})
    logits = base.run(changed, {}, {})
    read, gave = dict(base.read), dict(base.gave)
    rows = []
    for sender in range(layer):
        for one in range(4):
            own = slice(8 * one, 8 * (one + 1))
            held = {projection.format(i): lambda _, i=i: read[projection.format(i)] for i in range(layer)}
            name = projection.format(sender)
            held[name] = lambda _, own=own, name=name: into(own, theirs.read[name])(read[name])
            base.run(changed, held, {added.format(i): lambda _, i=i: gave[added.format(i)] for i in range(layer)})
            arrived = base.gave[maker]
            base.run(changed, {}, {maker: into(columns(family, side, head), arrived)})
            output = base.read[projection.format(layer)]
            where = slice(8 * head, 8 * (head + 1))  # of this head only, not of others that share its keys and values
            rows.append(base.run(changed, {projection.format(layer): into(where, output)}, {}))
    return logits, torch.stack(rows).unflatten(0, (layer, 4))


def spread(module: Any) -> Any:
    """The module with smaller queries and keys where random ones make weights of 0 and 1, which no small change moves."""
    with torch.no_grad():
        for name, one in module.named_parameters():
            if name.endswith(("c_attn.weight", "q_proj.weight", "k_proj.weight")):
                one *= 0.3
    return module


@variants("side", SIDES, crossed=False)
@variants("family", FAMILIES)
def test_is_what_hooks_give(family: str, side: str) -> None:
    """In every family, with normalisations on the way computed again and grouped heads that share what is patched for one of them only."""
    torch.manual_seed(0)
    module = spread(perturbed(FAMILIES[family]()))
    layers = module.config.num_hidden_layers
    receiver, place = (layers - 1, 2), 4
    for direction in ("denoise", "noise"):
        source, changed = (TOKENS, OTHER) if direction == "denoise" else (OTHER, TOKENS)
        method = {"name": "path-patching", "receiver": f"{receiver[0]}.{receiver[1]}", "reads": side}
        e = headscope.effect(
            module,
            token_ids=TOKENS,
            against=OTHER,
            target=(7, 9),
            position=place,
            method={**method, "direction": direction},
            dtype="float64",
        )
        logits, found = slow(module, family, source, changed, receiver, side)
        expected = (found[:, :, place, 7] - found[:, :, place, 9] - logits[place, 7] + logits[place, 9]).numpy()
        expected = expected if direction == "denoise" else -expected
        close = 1e-4 * np.abs(expected).max() + 1e-6  # Llama normalises in float32 also in a float64 model
        np.testing.assert_allclose(e.effects[: receiver[0]], expected, rtol=1e-3, atol=close)
        assert np.abs(expected).max() > 5e-5
        assert not e.effects[receiver[0] :].any()


@variants(
    "family",
    [
        "gpt_neox",
        "cohere2",
        "qwen3",
        "gpt_oss",
        "albert",
        "mixtral",
        "olmo2",
        "gemma3_text",
        "phi",
        "granite",
        "modernbert",
        "starcoder2",
        "phi3",
        "opt",
        "glm4",
        "roberta",
    ],
    short=4,
)
def test_of_other_architectures(family: str) -> None:
    """Nothing arrives from a text that is the same, and something from another; layers that share their modules keep apart."""
    model = headscope.load(build(family).module)
    numbers = ids(7, 1)
    other = [*numbers[:2], numbers[2] + 1, *numbers[3:]]
    for side in SIDES:
        method = {"name": "path-patching", "receiver": "1.0", "reads": side}
        same = headscope.effect(model, token_ids=numbers, against=numbers, position=5, method=method)
        np.testing.assert_allclose(same.effects, 0, atol=1e-4 * max(1, abs(same.target.value)))
        e = headscope.effect(model, token_ids=numbers, against=other, position=5, method=method)
        assert np.abs(e.effects[0]).max() > 0
        assert not e.effects[1:].any()


def test_refusals() -> None:
    """Heads that are not there, heads without earlier ones, texts that do not match, decoders beside an encoder."""
    gpt2 = headscope.load(FAMILIES["gpt2"]())
    for match, method, against in (
        ("no such head", {"receiver": "9.0"}, OTHER),
        ("no earlier heads", {"receiver": "0.1"}, OTHER),
        ("same number of tokens", {"receiver": "1.1"}, OTHER[:-1]),
        ("two texts", {"receiver": "1.1"}, None),
    ):
        with pytest.raises(InvalidRequest, match=match):
            headscope.effect(gpt2, token_ids=TOKENS, against=against, method={"name": "path-patching", **method})
    given: dict[str, Any] = {"token_ids": TOKENS, "against": OTHER, "target_ids": [0, 9]}
    with pytest.raises(Unsupported, match="also reads its encoder"):
        headscope.effect(_t5(), **given, method={"name": "path-patching", "receiver": "1.1"})


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_leaves_the_model_as_it_was(tiny: Model) -> None:
    before = headscope.analyze(tiny, token_ids=TOKENS, keep_logits=True).logits
    headscope.effect(
        tiny, token_ids=TOKENS, against=OTHER, position=2, method={"name": "path-patching", "receiver": "1.0"}
    )
    assert examine(tiny).all
    np.testing.assert_array_equal(before, headscope.analyze(tiny, token_ids=TOKENS, keep_logits=True).logits)
    assert not any("forward" in vars(part) for part in tiny.module.modules())
