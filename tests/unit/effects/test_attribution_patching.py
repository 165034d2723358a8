"""Attribution patching: against differences of the target for small changes of one head's output, in float64, with the model's own attention."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import headscope
from headscope import Model
from headscope.capture import examine
from headscope.errors import InvalidRequest, Unsupported
from tests.support.extent import mostly_long
from tests.sweep.build import build, ids

from ..conftest import TINY
from .test_contribution import FAMILIES, TOKENS, _t5, perturbed
from .test_patching import OTHER

STEP = 1e-4
Replacement = Callable[[int, torch.Tensor], torch.Tensor]


class Double(TorchFunctionMode):
    """Keeps float64 where models convert to float32, whose rounding is larger than the differences."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("dtype") == torch.float32 and func is torch.nn.functional.softmax:
            kwargs = {**kwargs, "dtype": torch.float64}
        output = func(*args, **kwargs)
        converts = func in (torch.Tensor.to, torch.Tensor.float) and args[0].dtype == torch.float64
        return args[0] if converts and output.dtype == torch.float32 else output


def kind_of(model: Model) -> Any:
    return examine(model).all[0].kind


def passed(
    module: Any, sites: Any, inputs: Any, shift: Callable[[int, torch.Tensor], torch.Tensor]
) -> tuple[Any, list[torch.Tensor]]:
    """The logits in float64, with what projections are given shifted, and what they were given, [1, Q, H, D] each."""
    outputs: list[torch.Tensor] = []

    def change(part: Any, args: Any) -> Any:
        outputs.append(args[0].reshape(*args[0].shape[:-1], sites[len(outputs)].heads, -1))
        return shift(len(outputs) - 1, outputs[-1]).flatten(2), *args[1:]

    names = dict.fromkeys(str(site.projection) for site in sites)
    handles = [module.get_submodule(name).register_forward_pre_hook(change) for name in names]
    with torch.no_grad(), Double():
        logits = module(**{name: torch.tensor([one]) for name, one in inputs.items()}, use_cache=False).logits[0]
    for handle in handles:
        handle.remove()
    return logits, outputs


def slopes(model: Model, kind: str, inputs: Any, place: int, replacement: Replacement | dict[str, Any]) -> Any:
    """By how much the target grows with the share of each head's output that is replaced, from none on, [L, H]; `replacement` may be the other input."""
    module, sites = copy.deepcopy(model.module).double(), examine(model).of(kind)  # type: ignore[arg-type]
    if isinstance(replacement, dict):
        others = passed(module, sites, replacement, lambda _, z: z)[1]

    def target(layer: int, head: int, step: float) -> float:
        def shift(here: int, z: torch.Tensor) -> torch.Tensor:
            if here != layer:
                return z
            z, other = z.clone(), others[here] if isinstance(replacement, dict) else replacement(here, z)
            z[:, :, head] += step * (other - z)[:, :, head]
            return z

        logits = passed(module, sites, inputs, shift)[0]
        return float(logits[place, 7] - logits[place, 9])

    def slope(layer: int, head: int) -> float:
        return (target(layer, head, STEP) - target(layer, head, -STEP)) / (2 * STEP)

    return np.array([[slope(layer, head) for head in range(site.heads)] for layer, site in enumerate(sites)])


ALONE: dict[str, Replacement] = {
    "mean": lambda _, z: z.mean(1, keepdim=True).expand_as(z),
    "zero": lambda _, z: torch.zeros_like(z),
}


@pytest.mark.parametrize("family", mostly_long(FAMILIES, "bert", "gemma2"))
def test_is_the_slope_of_the_target(family: str) -> None:
    """For every replacement, and with the target and its value in the other text as patching has them."""
    torch.manual_seed(0)
    model = headscope.load(perturbed(FAMILIES[family]()))
    kind, own, other = kind_of(model), {"input_ids": TOKENS}, {"input_ids": OTHER}
    expected = {of: -slopes(model, kind, own, 4, replacement) for of, replacement in ALONE.items()}
    expected |= {"noise": -slopes(model, kind, own, 4, other), "denoise": slopes(model, kind, other, 4, own)}
    shared: Any = {"token_ids": TOKENS, "target": (7, 9), "position": 4, "dtype": "float64"}
    for of, effects in expected.items():
        against = None if of in ALONE else OTHER
        e = headscope.effect(model, **shared, against=against, method={"name": "attribution-patching", "of": of})
        np.testing.assert_allclose(e.effects, effects, rtol=1e-4, atol=1e-5 * np.abs(effects).max(), err_msg=of)
        if against:
            exact = headscope.effect(model, **shared, against=against, method={"name": "patching", "direction": of})
            assert (e.target, e.baseline) == (exact.target, exact.baseline)


@pytest.mark.parametrize(
    "family",
    mostly_long(["gpt_neox", "olmo2", "albert", "qwen3_5_text", "roberta-prelayernorm"], "olmo2", "qwen3_5_text"),
)
def test_in_other_architectures(family: str) -> None:
    """Parallel blocks, sandwich norms, shared layers, gates, sums inside modules."""
    model, tokens = headscope.load(build(family).module), ids(9, 1)
    expected = -slopes(model, kind_of(model), {"input_ids": tokens}, 5, ALONE["mean"])
    method = {"name": "attribution-patching", "of": "mean"}
    e = headscope.effect(model, token_ids=tokens, target=(7, 9), position=5, method=method, dtype="float64")
    np.testing.assert_allclose(e.effects, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", mostly_long(["decoder", "cross"], "cross"))
def test_of_an_encoder_decoder(kind: str) -> None:
    torch.manual_seed(0)
    model, target = headscope.load(perturbed(_t5())), [0, 9, 31]
    inputs = {"input_ids": TOKENS, "decoder_input_ids": target}
    expected = -slopes(model, kind, inputs, 2, ALONE["zero"])
    shared: Any = {"token_ids": TOKENS, "target_ids": target, "target": (7, 9), "kind": kind, "dtype": "float64"}
    e = headscope.effect(model, **shared, method={"name": "attribution-patching", "of": "zero"})
    np.testing.assert_allclose(e.effects, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_in_blocks_of_heads(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that does not fit at once changes nothing, and the model is left as it was."""
    shared: Any = {"token_ids": TOKENS, "target": 7, "position": 4}
    method = {"name": "attribution-patching", "of": "mean"}
    whole = headscope.effect(tiny, **shared, method=method).effects
    monkeypatch.setattr("headscope.capture.interface.BLOCK_BYTES", 1)
    np.testing.assert_allclose(headscope.effect(tiny, **shared, method=method).effects, whole, atol=1e-5)
    assert all(one.grad is None for one in tiny.module.parameters())
    assert not any(one._forward_pre_hooks for one in tiny.module.modules())


@pytest.mark.parametrize("tiny", mostly_long(TINY, "gpt2"), indirect=True)
def test_with_the_same_text_nothing_changes(tiny: Model) -> None:
    shared: Any = {"token_ids": TOKENS, "position": 4, "method": "attribution-patching"}
    e = headscope.effect(tiny, **shared, against=TOKENS)
    np.testing.assert_allclose(e.effects, 0, atol=1e-6)
    with pytest.raises(InvalidRequest, match="Give the other one"):
        headscope.effect(tiny, **shared)


def test_without_a_gradient_it_is_refused() -> None:
    """A model that cuts its stream from what comes before: the estimates would be zero."""
    torch.manual_seed(0)
    module = FAMILIES["llama"]()
    module.model.norm.register_forward_hook(lambda part, args, output: output.detach())
    method = {"name": "attribution-patching", "of": "mean"}
    with pytest.raises(Unsupported, match="no gradient flows"):
        headscope.effect(headscope.load(module), token_ids=TOKENS, target=7, method=method)
