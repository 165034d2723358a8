"""The ablation grid: against separate passes with a hook that replaces one head's output."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import headscope
from headscope import Model
from headscope.capture import examine, replaced
from headscope.errors import InvalidRequest, Unsupported
from tests.support.extent import mostly_long
from tests.support.variants import variants
from tests.sweep.build import build, ids

from ..conftest import TINY
from .test_contribution import FAMILIES, SMALL, TOKENS, _t5, perturbed


def separate(
    model: Model, kind: str, how: str, judge: Callable[[Any], float], sets: Any = None, **inputs: Any
) -> np.ndarray[Any, Any]:
    """By how much the target falls in one pass per head, or per set of heads (layer, head), of a copy in float64, with its own attention."""
    given = {name: torch.tensor([value]) for name, value in inputs.items()}
    module = copy.deepcopy(model.module).double()
    module.set_experts_implementation("eager")  # torch multiplies groups of experts in float32 at most
    sites = examine(model).of(kind)

    def passed(*heads: tuple[int, int]) -> float:
        calls = iter(range(len(sites)))

        def replace(part: Any, args: Any) -> Any:
            here = next(calls)
            z = args[0].clone().view(*args[0].shape[:-1], sites[here].heads, -1)
            for head in (head for layer, head in heads if layer == here):
                z[:, :, head] = z[:, :, head].mean(1, keepdim=True) if how == "mean" else 0
            return z.flatten(2), *args[1:]

        names = {str(site.projection) for site in sites}
        handles = [module.get_submodule(name).register_forward_pre_hook(replace) for name in names]
        try:
            with torch.no_grad():
                return judge(module(**given, use_cache=False).logits[0])
        finally:
            for handle in handles:
                handle.remove()

    whole = passed()
    sets = sets or [[(layer, head)] for layer in range(len(sites)) for head in range(sites[0].heads)]
    return np.array([whole - passed(*heads) for heads in sets]).reshape(-1, sites[0].heads if len(sets) > 1 else 1)


@variants("how", ["mean", "zero"], crossed=False)
@variants("family", FAMILIES)
def test_is_what_separate_passes_give(family: str, how: str) -> None:
    torch.manual_seed(0)
    model = headscope.load(perturbed(FAMILIES[family]()))
    kind = "self" if family != "bert" else examine(model).all[0].kind
    expected = separate(model, kind, how, lambda rows: float(rows[3, 7] - rows[3, 9]), input_ids=TOKENS)
    e = headscope.effect(model, token_ids=TOKENS, target=(7, 9), position=3, method={"name": "ablation", "how": how})
    np.testing.assert_allclose(e.effects, expected, rtol=1e-3, atol=2e-5 * max(1, np.abs(expected).max()))
    assert np.abs(e.effects).min(-1).all()
    assert (e.parts, np.isnan(e.remainder), e.sources) == ({}, True, None)


@variants("how", ["mean", "zero"], crossed=False)
@variants("family", FAMILIES)
def test_of_several_heads_together(family: str, how: str) -> None:
    """As one pass gives it; each of them on its own as in the grid, and no other head."""
    torch.manual_seed(0)
    model, heads = headscope.load(perturbed(FAMILIES[family]())), [(0, 1), (1, 0), (1, 3)]
    kind, names = examine(model).all[0].kind, [f"{layer}.{head}" for layer, head in heads]
    judge: Any = {"judge": lambda rows: float(rows[3, 7] - rows[3, 9]), "input_ids": TOKENS}
    expected = separate(model, kind, how, sets=[heads], **judge).item()
    shared: Any = {"token_ids": TOKENS, "target": (7, 9), "position": 3}
    e = headscope.effect(model, **shared, method={"name": "ablation", "how": how, "heads": names})
    assert e.together is not None
    assert e.together.effect == pytest.approx(expected, rel=1e-3, abs=1e-4)
    whole = headscope.effect(model, **shared, method={"name": "ablation", "how": how}).effects
    known = np.zeros_like(whole, bool)
    known[tuple(zip(*heads, strict=True))] = True
    np.testing.assert_allclose(e.effects, np.where(known, whole, np.nan), rtol=1e-3, atol=1e-4)
    assert {name for name, _ in e.top(20)} == set(names)
    logits = headscope.analyze(model, token_ids=TOKENS, keep_logits=True).logits
    assert logits is not None
    assert e.together.before.ids[0].tolist() == np.argsort(-logits[3])[:10].tolist()
    gone = e.together.after.logits[0] - e.together.before.logits[0]
    assert np.abs(gone).min() > 0


@pytest.mark.parametrize("tiny", mostly_long(TINY, "gpt2"), indirect=True)
def test_unknown_heads_are_refused(tiny: Model) -> None:
    for heads, match in ((["0.4"], "no such head"), (["9.0"], "no such head"), (["0.01"], "heads")):
        with pytest.raises(InvalidRequest, match=match):
            headscope.effect(tiny, token_ids=TOKENS, position=1, method={"name": "ablation", "heads": heads})


def test_in_parts_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads that do not fit at once, and a batch whose attention does not fit at once, change nothing."""
    torch.manual_seed(0)
    model = headscope.load(FAMILIES["llama"]())
    whole = headscope.effect(model, token_ids=TOKENS, target=7, method="ablation").effects
    monkeypatch.setattr(replaced, "TOKENS", 2 * len(TOKENS))
    np.testing.assert_allclose(
        headscope.effect(model, token_ids=TOKENS, target=7, method="ablation").effects, whole, atol=1e-5
    )
    monkeypatch.setattr("headscope.capture.batch.BLOCK_BYTES", 1)
    np.testing.assert_allclose(
        headscope.effect(model, token_ids=TOKENS, target=7, method="ablation").effects, whole, atol=1e-5
    )


@pytest.mark.parametrize("kind", mostly_long(["decoder", "cross"], "cross"))
def test_of_an_encoder_decoder(kind: str) -> None:
    torch.manual_seed(0)
    model, target = headscope.load(perturbed(_t5())), [0, 9, 31]
    inputs = {"input_ids": TOKENS, "decoder_input_ids": target}
    expected = separate(model, kind, "zero", lambda rows: float(rows[2, 11]), **inputs)
    method = {"name": "ablation", "how": "zero"}
    e = headscope.effect(model, token_ids=TOKENS, target_ids=target, target=11, kind=kind, method=method)
    np.testing.assert_allclose(e.effects, expected, rtol=1e-3, atol=2e-5 * np.abs(expected).max())


def test_runs_the_encoder_once() -> None:
    """Also where it returns more than hidden states, such as what its experts were chosen by."""
    model, lengths = headscope.load(build("switch_transformers").module), list[int]()

    def note(part: Any, args: Any, kwargs: Any, output: Any) -> None:
        lengths.append(kwargs["input_ids"].shape[1])

    handle = model.module.get_encoder().register_forward_hook(note, with_kwargs=True)
    e = headscope.effect(model, token_ids=ids(9, 1), target_ids=ids(5, 2), method="ablation")
    handle.remove()
    assert lengths.count(9) == 1  # the others are of the probe
    assert np.abs(e.effects).max(-1).all()


def test_of_a_class() -> None:
    torch.manual_seed(0)
    model = headscope.load(perturbed(BertForSequenceClassification(BertConfig(**SMALL, num_labels=3))))
    sites = examine(model)
    expected = [
        float(headscope.effect(model, token_ids=TOKENS, target=1).target.value)
        - headscope.analyze(
            model,
            token_ids=TOKENS,
            mechanism={"name": "ablate", "heads": [f"1.{head}"], "how": "zero"},
            keep_logits=True,
        ).logits[1]  # type: ignore[index]
        for head in range(sites.all[1].heads)
    ]
    e = headscope.effect(model, token_ids=TOKENS, target=1, method={"name": "ablation", "how": "zero"})
    np.testing.assert_allclose(e.effects[1], expected, atol=1e-5)


@pytest.mark.parametrize(
    "family",
    mostly_long(["gpt_neox", "mixtral", "albert", "qwen3_5_text", "roberta-prelayernorm"], "gpt_neox", "mixtral"),
)
def test_in_other_architectures(family: str) -> None:
    """Parallel blocks, experts, shared layers, gates, sums inside modules."""
    model, tokens = headscope.load(build(family).module), ids(9, 1)
    kind = examine(model).all[0].kind
    expected = separate(model, kind, "mean", lambda rows: float(rows[5, 7]), input_ids=tokens)
    for dtype, within in (("float32", 2e-5), ("float64", 1e-6)):
        e = headscope.effect(model, token_ids=tokens, target=7, position=5, method="ablation", dtype=dtype)
        np.testing.assert_allclose(e.effects, expected, rtol=50 * within, atol=within * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_leaves_the_model_as_it_was(tiny: Model) -> None:
    before = headscope.analyze(tiny, token_ids=TOKENS, keep_logits=True).logits
    headscope.effect(tiny, token_ids=TOKENS, position=1, method="ablation")
    assert not any("forward" in vars(part) for part in tiny.module.modules())
    np.testing.assert_array_equal(headscope.analyze(tiny, token_ids=TOKENS, keep_logits=True).logits, before)


def test_layers_that_need_those_before_are_refused() -> None:
    """A layer that adds what another one has left beside what it returns."""
    torch.manual_seed(0)
    model, left = headscope.load(FAMILIES["llama"]()), list[float]()
    layers = model.module.model.layers
    model.module.register_forward_pre_hook(lambda *_: left.clear())
    layers[0].mlp.register_forward_hook(lambda part, args, output: left.append(float(output.mean()) + 1))
    layers[2].register_forward_pre_hook(lambda part, args: (args[0] + sum(left), *args[1:]))
    for method in ("ablation", "integrated-gradients"):
        with pytest.raises(Unsupported, match="layers before them"):
            headscope.effect(model, token_ids=TOKENS, target=7, method=method)
