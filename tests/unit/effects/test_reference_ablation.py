"""Ablation by the mean over reference texts: against separate passes in float64, with plain hooks on the model itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertForSequenceClassification

import headscope
from headscope import Model
from headscope.analysis.effect import input_for_reference
from headscope.errors import InvalidRequest
from tests.support.extent import mostly_long
from tests.support.variants import variants

from .test_contribution import FAMILIES, SMALL, TOKENS, _t5, perturbed

REFERENCE = [[5, 88, 3], [7, 17, 42, 9, 120, 6, 31], [11]]
METHOD = {"name": "ablation", "how": "reference"}
# Family -> the output projection of a layer, and its heads.
PROJECTIONS = {
    "gpt2": "transformer.h.{}.attn.c_proj",
    "llama": "model.layers.{}.self_attn.o_proj",
    "classifier": "bert.encoder.layer.{}.attention.output.dense",
    "t5": "decoder.block.{}.layer.1.EncDecAttention.o",
}
HEADS = 4


def _classifier() -> Any:
    return BertForSequenceClassification(BertConfig(**SMALL, num_labels=3, initializer_range=0.5))


def made(family: str) -> Any:
    torch.manual_seed(0)
    return perturbed({**FAMILIES, "classifier": _classifier, "t5": _t5}[family]())


def expected(module: Any, projection: str, judge: Callable[[Any], float], **more: list[int]) -> NDArray[Any]:
    """By how much the target falls in one pass per head, [L, H]."""
    module = copy.deepcopy(module).double().eval()
    layers = [part for name, part in module.named_modules() if name in {projection.format(i) for i in range(9)}]

    def logits(ids: list[int]) -> Any:
        given = {"input_ids": ids, **more}
        with torch.no_grad():
            return module(**{name: torch.tensor([one]) for name, one in given.items()}, use_cache=False).logits[0]

    def mean(layer: Any) -> Any:
        found: list[Any] = []
        handle = layer.register_forward_pre_hook(lambda part, args: found.append(args[0][0]))
        for ids in REFERENCE:
            logits(ids)
        handle.remove()
        return torch.cat(found).mean(0).view(HEADS, -1)

    def without(layer: Any, head: int, value: Any) -> float:
        def replace(part: Any, args: Any) -> Any:
            z = args[0].clone().view(*args[0].shape[:-1], HEADS, -1)
            z[:, :, head] = value
            return (z.flatten(2),)

        handle = layer.register_forward_pre_hook(replace)
        found = judge(logits(TOKENS))
        handle.remove()
        return found

    whole = judge(logits(TOKENS))
    return np.array([[whole - without(one, head, mean(one)[head]) for head in range(HEADS)] for one in layers])


@pytest.mark.parametrize("family", mostly_long(["gpt2", "llama", "classifier", "t5"], "llama", "t5"))
def test_is_what_separate_passes_give(family: str) -> None:
    """Also in a decoder, which reads its own text after each reference text in the encoder."""
    module, place = made(family), None if family == "classifier" else 2
    decoder = {"target_ids": [0, 9, 31], "kind": "cross"} if family == "t5" else {}
    more = {"decoder_input_ids": [0, 9, 31]} if family == "t5" else {}
    want = expected(
        module, PROJECTIONS[family], lambda rows: float((rows if place is None else rows[place])[1]), **more
    )
    options: Any = {"token_ids": TOKENS, "target": 1, "position": place, **decoder}
    e = headscope.effect(headscope.load(module), **options, method=METHOD, reference=REFERENCE, dtype="float64")
    assert want.shape == (3 if family != "classifier" else 2, HEADS)
    np.testing.assert_allclose(e.effects, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_of_heads_together_and_of_the_text_itself(tiny: Model) -> None:
    """The text as the only reference text gives its own mean, also if it is cut, and for several heads at once."""
    shared: Any = {"token_ids": TOKENS, "target": 7, "position": 2, "max_tokens": len(TOKENS)}
    named = {"heads": ["1.0", "1.2"]}  # of one layer: those above would see another mean of the text
    own = headscope.effect(tiny, **shared, method={"name": "ablation", **named})
    e = headscope.effect(tiny, **shared, method={**METHOD, **named}, reference=[[*TOKENS, 3, 8]])
    np.testing.assert_allclose(e.effects, own.effects, atol=1e-4)
    assert e.together is not None
    assert own.together is not None
    assert e.together.effect == pytest.approx(own.together.effect, abs=1e-4)


def test_what_a_reference_text_has_of_the_input() -> None:
    """The decoder's text, but no mask or labels; and at most as many tokens as each limit allows."""
    given = {"text": "A cat.", "text_pair": "Eine Katze.", "mask": [2], "pos": ["x"], "labels": ["y"]}
    found = input_for_reference(given, [5, 6], 1024)
    assert {name: one for name, one in found.items() if one is not None} == {
        "token_ids": [5, 6],
        "text_pair": "Eine Katze.",
        "max_tokens": 512,
    }
    for most, longest, read in ((7, None, 7), (900, None, 512), (None, 64, 64), (None, None, 512)):
        assert input_for_reference({"max_tokens": most}, "A dog.", longest)["max_tokens"] == read


@variants(
    ("method", "reference", "match"),
    [
        (METHOD, None, "at least one"),
        (METHOD, [], "at least 1"),
        (METHOD, [[5]] * 1001, "at most 1000"),
        (METHOD, [[5], []], "reference.1"),
        (METHOD, [[5], [10**5]], "outside"),
        (METHOD, "A text.", "list of texts"),
        (METHOD, [[5], 7], "integers"),
        ("ablation", [[5]], "Omit them"),
        ("contribution", [[5]], "Omit them"),
    ],
)
def test_what_is_refused(method: Any, reference: Any, match: str) -> None:
    """Too few or too many texts, texts that are none, and texts that nothing reads."""
    with pytest.raises(InvalidRequest, match=match):
        headscope.effect(headscope.load(made("gpt2")), token_ids=TOKENS, method=method, reference=reference)
