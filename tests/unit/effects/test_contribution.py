"""Direct contributions: against the definition in float64, summing to the logit, split by token, and refused where they would not sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

import headscope
from headscope import Model
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Layer
from headscope.errors import InvalidRequest, Unknown, Unsupported
from tests.support.extent import mostly_long
from tests.support.variants import variants
from tests.sweep.build import build, ids

from ..conftest import TINY, VOCABULARY
from . import reference

TOKENS = [5, 17, 5, 42, 9, 77]
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
SOURCES = {"name": "contribution", "sources": True}


def _gemma() -> Any:
    capped = {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0}
    return Gemma2ForCausalLM(Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=8, initializer_range=0.5, **capped))


def cohere() -> Any:
    """Queries and keys of each head are normalised with a gain of its own."""
    module = CohereForCausalLM(CohereConfig(**SMALL, num_key_value_heads=2, use_qk_norm=True, pad_token_id=0))
    with torch.no_grad():
        for layer in module.model.layers:
            for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
                norm.weight += 0.3 * torch.randn(norm.weight.shape)
    return module


def _t5() -> Any:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **sizes))


FAMILIES: dict[str, Callable[[], Any]] = {**TINY, "gemma2": _gemma}


def perturbed(module: Any) -> Any:
    """The module with random biases and gains: models are initialised with 0 and 1, with which mistakes would not show."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for one in module.parameters():
            if one.dim() == 1:
                one += 0.3 * torch.randn(one.shape, generator=generator)
    return module.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_is_the_definition_and_sums_to_the_logit(family: str) -> None:
    """Heads, feed-forward parts and the embedding, each; with the biases they sum to the logit of the token."""
    torch.manual_seed(0)
    module = perturbed(FAMILIES[family]())
    model, place, token = headscope.load(module), 3, 7
    recorded, heads, mlps, embedding = getattr(reference, family)(module, TOKENS, place)
    e = headscope.effect(model, token_ids=TOKENS, target=token, position=place)
    scale = np.abs(heads[..., token]).max()
    np.testing.assert_allclose(e.effects, heads[..., token], rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(e.parts["mlp"], mlps[:, token], rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(e.parts["embedding"], embedding[token], rtol=1e-4, atol=1e-4 * scale)
    logit = recorded.logits[place, token]
    assert e.target.value == pytest.approx(logit, rel=1e-4)
    assert sum(part.sum(dtype=float) for part in e.parts.values()) == pytest.approx(logit, rel=1e-4)
    assert e.parts["bias"] != 0 or family in ("llama", "gemma2")
    assert e.target.capped is (family == "gemma2")
    assert e.remainder == pytest.approx(0, abs=1e-4 * abs(logit))


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_of_a_difference_and_of_the_models_own_choice(tiny: Model) -> None:
    """The difference of two targets is the difference of their contributions; the largest logit is the default."""
    one, other, both = (
        headscope.effect(tiny, token_ids=TOKENS, target=target, position=-2) for target in (3, 8, (3, 8))
    )
    assert both.target.position == len(TOKENS) - 2
    assert both.target.ids == (3, 8)
    np.testing.assert_allclose(both.effects, one.effects - other.effects, atol=1e-5)
    logits = headscope.analyze(tiny, token_ids=TOKENS, keep_logits=True).logits
    assert logits is not None
    own = headscope.effect(tiny, token_ids=TOKENS, position=-2)
    assert own.target.ids == (int(logits[-2].argmax()),)
    assert own.target.value == pytest.approx(logits[-2].max(), rel=1e-5)
    assert "contribution on" in repr(own)
    assert own.top(1)[0][1] == own.effects.flat[np.abs(own.effects).argmax()]
    assert own.top(0) == []
    with pytest.raises(InvalidRequest, match="count must be a whole number, 0 or larger"):
        own.top(-1)


@pytest.mark.parametrize("family", mostly_long(TINY, "llama"))
def test_of_heads_by_token(family: str) -> None:
    """Weight times value of one key, in place of the head's output, for every key in turn."""
    torch.manual_seed(0)
    model, place = headscope.load(perturbed(TINY[family]())), 4
    layers: list[Layer] = []
    sites = examine(model)
    capture(model, model.encode(token_ids=TOKENS), sites, CaptureSpec(layers.append))
    e = headscope.effect(model, token_ids=TOKENS, target=7, position=place, method=SOURCES)
    assert e.sources is not None
    for key in range(len(TOKENS)):
        given = {
            str(site.projection): (layer.weights[:, place, key, None] * layer.values_by_head[:, key])
            .double()
            .flatten()
            .numpy()
            for site, layer in zip(sites.all, layers, strict=True)
        }
        _, heads, _, _ = getattr(reference, family)(model.module, TOKENS, place, given)
        np.testing.assert_allclose(e.sources[..., key], heads[..., 7], rtol=1e-3, atol=1e-4 * np.abs(e.effects).max())
    np.testing.assert_allclose(e.sources.sum(-1), e.effects, atol=1e-5)


@pytest.mark.parametrize("kind", mostly_long(["decoder", "cross"], "cross"))
def test_of_an_encoder_decoder(kind: str) -> None:
    torch.manual_seed(0)
    module, target = perturbed(_t5()), [0, 9, 31]
    _, heads = reference.t5(module, TOKENS, target, 2, kind == "cross")
    e = headscope.effect(module, token_ids=TOKENS, target_ids=target, target=11, kind=kind, method=SOURCES)
    np.testing.assert_allclose(e.effects, heads[..., 11], rtol=1e-4, atol=1e-4 * np.abs(heads).max())
    assert e.sources is not None
    assert e.sources.shape[-1] == (len(TOKENS) if kind == "cross" else 3)
    np.testing.assert_allclose(e.sources.sum(-1), e.effects, atol=1e-5)
    assert set(e.parts) == {"decoder", "cross", "mlp", "embedding", "bias"}
    with pytest.raises(Unsupported, match="through the decoder"):
        headscope.effect(module, token_ids=TOKENS, target_ids=target, kind="encoder")


def test_of_a_class() -> None:
    """Of the whole input; through the pooler, whose tanh keeps its share."""
    torch.manual_seed(0)
    module = perturbed(BertForSequenceClassification(BertConfig(**SMALL, id2label={0: "bad", 1: "good"})))
    e = headscope.effect(module, token_ids=TOKENS, target=("good", "bad"))
    with torch.no_grad():
        logits = module(torch.tensor([TOKENS])).logits[0]
    assert e.target.value == pytest.approx(float(logits[1] - logits[0]), rel=1e-4)
    assert (e.target.position, e.target.texts) == (None, ("good", "bad"))
    assert e.remainder == pytest.approx(0, abs=1e-5)


def test_of_the_class_of_an_image() -> None:
    """Of patches; with what zeroing leaves of it."""
    torch.manual_seed(0)
    sizes = {name: value for name, value in SMALL.items() if name != "vocab_size"}
    module = perturbed(ViTForImageClassification(ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=5)))
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    e = headscope.effect(module, image=image, target=3, method=SOURCES)
    logits = headscope.analyze(module, image=image, keep_logits=True).logits
    assert logits is not None
    assert e.target.value == pytest.approx(logits[3], rel=1e-4)
    assert e.remainder == pytest.approx(0, abs=1e-5)
    assert e.sources is not None
    assert e.sources.shape == (2, 4, 17)
    np.testing.assert_allclose(e.sources.sum(-1), e.effects, atol=1e-5)
    without = headscope.analyze(
        module, image=image, mechanism={"name": "ablate", "heads": ["0.2"], "how": "zero"}, keep_logits=True
    ).logits
    assert without is not None
    ablated = headscope.effect(module, image=image, target=3, method={"name": "ablation", "how": "zero"})
    assert ablated.effects[0, 2] == pytest.approx(logits[3] - without[3], abs=1e-5)


@variants(
    "family",
    [
        "gpt_neox",
        "cohere2",
        "granite",
        "olmo",
        "olmo2",
        "qwen3_5_text",
        "mixtral",
        "albert",
        "xlm-roberta",
        "roberta-prelayernorm",
    ],
    short=4,
)
def test_sums_in_other_architectures(family: str) -> None:
    """Parallel blocks, multipliers, sandwich norms, gates, experts, shared layers, heads with functions, sums inside modules."""
    model = headscope.load(build(family).module)
    e = headscope.effect(model, token_ids=ids(9, 1), position=5, method=SOURCES)
    assert e.remainder == pytest.approx(0, abs=1e-4 * max(1, abs(e.target.value)))
    assert e.sources is not None
    np.testing.assert_allclose(e.sources.sum(-1), e.effects, atol=1e-5 * max(1, np.abs(e.effects).max()))
    assert np.abs(e.effects).max(-1).all()


def test_through_an_output_head_of_functions() -> None:
    """ESM's, whose GELU is written out and whose bias is in no linear module."""
    torch.manual_seed(0)
    module = perturbed(build("esm").module)
    tokens, place, token = ids(9, 1), 5, 7
    recorded, heads, mlps, embedding = reference.esm(module, tokens, place)
    e = headscope.effect(headscope.load(module), token_ids=tokens, target=token, position=place)
    scale = np.abs(heads[..., token]).max()
    np.testing.assert_allclose(e.effects, heads[..., token], rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(e.parts["mlp"], mlps[:, token], rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(e.parts["embedding"], embedding[token], rtol=1e-4, atol=1e-4 * scale)
    assert e.target.value == pytest.approx(recorded.logits[place, token], rel=1e-4)
    assert not e.target.capped


@pytest.mark.parametrize("tiny", mostly_long(TINY, "bert"), indirect=True)
def test_leaves_the_model_as_it_was(tiny: Model) -> None:
    """No hook stays, no gradient is kept, and gradients are on or off as before."""
    before = headscope.analyze(tiny, token_ids=TOKENS, keep_logits=True).logits
    headscope.effect(tiny, token_ids=TOKENS, position=1)
    assert torch.is_grad_enabled()
    assert all(one.grad is None for one in tiny.module.parameters())
    after = headscope.analyze(tiny, token_ids=TOKENS, keep_logits=True).logits
    np.testing.assert_array_equal(before, after)


def _shifted() -> Any:
    """A model to whose stream something is added that is in none of its modules."""
    module = TINY["llama"]()
    module.model.layers[0].register_forward_hook(lambda part, args, output: output + 1.0)
    return module


def test_refusals(minilm: Model) -> None:
    """What has no logits, no direct path, or no such target is refused with the reason."""
    gpt2 = headscope.load(TINY["gpt2"]())
    for error, match, model, given in [
        (Unsupported, "no head that returns logits", headscope.load(BertModel(BertConfig(**SMALL))), {}),
        (Unsupported, "more than add to it", headscope.load(build("hrm_text").module), {"token_ids": ids(9, 1)}),
        (Unsupported, "do not sum to its logits", headscope.load(_shifted()), {}),
        (InvalidRequest, "below 200", gpt2, {"target": 200}),
        (InvalidRequest, "a pair", gpt2, {"target": (1, 2, 3)}),
        (InvalidRequest, "position must be from -6 to 5", gpt2, {"position": 6}),
        (InvalidRequest, "mask one token", headscope.load(TINY["bert"]()), {}),
        (Unsupported, "without a tokenizer", gpt2, {"target": " Paris"}),
        (Unknown, "contribution", gpt2, {"method": "direct"}),
        (InvalidRequest, "sources", gpt2, {"method": {"name": "contribution", "sources": 3}}),
    ]:
        with pytest.raises(error, match=match):
            headscope.effect(model, **{"token_ids": TOKENS, **given})
