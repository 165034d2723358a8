"""Patching: against separate passes with a hook that exchanges one head's output for that of the other text."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

import headscope
from headscope import Model
from headscope.capture import examine
from headscope.errors import InvalidRequest
from tests.support.extent import mostly_long
from tests.support.models import wordpiece
from tests.support.variants import variants

from ..conftest import TINY
from .test_contribution import FAMILIES, SMALL, TOKENS, _t5, perturbed

OTHER = [5, 17, 33, 42, 9, 78]


def separate(
    model: Model, kind: str, source: list[int], changed: list[int], ids: list[int], place: int, **more: Any
) -> Any:
    """The target of the source, that of the changed input, and of the latter with each head's output of the source, [L, H], by a copy in float64."""
    sites, module = examine(model).of(kind), copy.deepcopy(model.module).double()

    def passed(tokens: list[int], layer: int = -1, head: int = -1) -> tuple[float, list[Any]]:
        outputs: list[Any] = []

        def exchange(part: Any, args: Any) -> Any:
            outputs.append(args[0])
            if len(outputs) - 1 != layer:
                return None
            own, other = (one.clone().view(*one.shape[:-1], sites[layer].heads, -1) for one in (args[0], theirs[layer]))
            own[:, :, head] = other[:, :, head]
            return own.flatten(2), *args[1:]

        parts = [module.get_submodule(name) for name in dict.fromkeys(str(site.projection) for site in sites)]
        handles = [part.register_forward_pre_hook(exchange) for part in parts]
        with torch.no_grad():
            given = {"input_ids": torch.tensor([tokens]), **{name: torch.tensor([one]) for name, one in more.items()}}
            logits = module(**given, use_cache=False).logits[0, place]
        for handle in handles:
            handle.remove()
        return float(logits[ids[0]] - logits[ids[1]]), outputs

    theirs: list[Any] = []
    clean, theirs = passed(source)
    base, _ = passed(changed)
    each = [[passed(changed, layer, head)[0] for head in range(site.heads)] for layer, site in enumerate(sites)]
    return clean, base, np.array(each)


@variants("direction", ["denoise", "noise"], crossed=False)
@variants("family", FAMILIES)
def test_is_what_separate_passes_give(family: str, direction: str) -> None:
    torch.manual_seed(0)
    model = headscope.load(perturbed(FAMILIES[family]()))
    kind, method = examine(model).all[0].kind, {"name": "patching", "direction": direction}
    source, changed = (TOKENS, OTHER) if direction == "denoise" else (OTHER, TOKENS)
    first, second, each = separate(model, kind, source, changed, [7, 9], 4)
    e = headscope.effect(model, token_ids=TOKENS, against=OTHER, target=(7, 9), position=4, method=method)
    own, baseline = (first, second) if direction == "denoise" else (second, first)
    assert (e.target.value, e.baseline) == (pytest.approx(own, abs=1e-4), pytest.approx(baseline, abs=1e-4))
    expected = each - second if direction == "denoise" else second - each
    np.testing.assert_allclose(e.effects, expected, rtol=1e-3, atol=5e-5 * max(1, np.abs(expected).max()))
    np.testing.assert_allclose(e.shares, expected / (own - baseline), rtol=1e-2, atol=1e-3)


def test_all_heads_together_carry_everything_but_the_embedding() -> None:
    """A model whose last layer has heads only, which read the last token only through them."""
    torch.manual_seed(0)
    model = headscope.load(perturbed(FAMILIES["llama"]()))
    heads = [f"{layer}.{head}" for layer, site in enumerate(examine(model).all) for head in range(site.heads)]
    shared: Any = {"token_ids": TOKENS, "against": [*OTHER[:-1], TOKENS[-1]], "target": (7, 9)}
    for direction in ("denoise", "noise"):
        e = headscope.effect(model, **shared, method={"name": "patching", "direction": direction, "heads": heads})
        assert e.together is not None
        assert e.together.effect == pytest.approx(e.target.value - e.baseline, abs=1e-4)


@pytest.mark.parametrize("kind", mostly_long(["decoder", "cross"], "cross"))
def test_of_an_encoder_decoder(kind: str) -> None:
    """The texts of the encoder differ, that of the decoder is the same."""
    torch.manual_seed(0)
    model, target = headscope.load(perturbed(_t5())), [0, 9, 31]
    _, base, each = separate(model, kind, TOKENS, OTHER, [7, 9], 2, decoder_input_ids=target)
    given = {"token_ids": TOKENS, "against": OTHER, "target_ids": target}
    e = headscope.effect(model, **given, target=(7, 9), kind=kind, method="patching")
    np.testing.assert_allclose(e.effects, each - base, rtol=1e-3, atol=5e-5 * np.abs(each - base).max())


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_with_the_same_text_nothing_changes(tiny: Model) -> None:
    e = headscope.effect(tiny, token_ids=TOKENS, against=TOKENS, position=4, method="patching")
    np.testing.assert_allclose(e.effects, 0, atol=1e-5)
    assert np.isnan(e.shares).all()
    assert np.isnan(headscope.effect(tiny, token_ids=TOKENS, position=4).shares).all()


@pytest.mark.parametrize("tiny", mostly_long(TINY, "bert"), indirect=True)
def test_needs_another_text_of_as_many_tokens(tiny: Model) -> None:
    for against, match in ((None, "Give the other one"), (OTHER[:-1], "6 and 5")):
        with pytest.raises(InvalidRequest, match=match):
            headscope.effect(tiny, token_ids=TOKENS, against=against, position=4, method="patching")


def test_beside_a_second_text() -> None:
    """The other text is read with the same second text. Token ids are all that a single stack reads, so they cannot be."""
    torch.manual_seed(3)
    tokenizer = wordpiece()
    module = BertForSequenceClassification(
        BertConfig(**{**SMALL, "vocab_size": len(tokenizer), "initializer_range": 0.5})
    )
    model, texts = headscope.load(module.eval(), tokenizer), {"text": "the cat sat", "text_pair": "a dog"}
    e = headscope.effect(model, **texts, against=texts["text"], method="patching")
    assert e.baseline == pytest.approx(e.target.value)
    ids = [token.id for token in model.encode(**texts).tokens]
    with pytest.raises(InvalidRequest, match="Give them as texts"):
        headscope.effect(model, **texts, against=ids, method="patching")
    with pytest.raises(InvalidRequest, match="Give them as texts"):
        headscope.effect(model, **texts, reference=[ids], method={"name": "ablation", "how": "reference"})


def test_labels_of_the_input_are_not_those_of_the_other_text() -> None:
    """Which may have other numbers of words and of tokens that are labelled."""
    torch.manual_seed(3)
    tokenizer = wordpiece()
    model = headscope.load(
        GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4)), tokenizer
    )
    rows = [{"text": "the cat sat", "against": "axy", "labels": ["A", "B", "C"]}]
    assert len(model.encode(text=rows[0]["text"]).tokens) == len(model.encode(text=rows[0]["against"]).tokens)
    s = headscope.study(model, rows, effects=["patching"], lenses=["weights"], measures=())
    assert s.document["failed_count"] == 0
