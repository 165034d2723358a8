"""Effects in models that are no plain language models: with an image beside a text, with other heads, vocabularies and mechanisms; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import (
    BertConfig,
    BertForTokenClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
)

import headscope
from headscope.capture import examine
from headscope.errors import InvalidRequest, Unsupported
from headscope.models.vocabulary import ModelVocabulary
from tests.support.extent import mostly_long
from tests.sweep.build import build
from tests.unit.test_image_text import loaded, picture

from ..conftest import VOCABULARY
from .test_contribution import SMALL, TOKENS

PICTURED = ["qwen2_vl", "idefics3", "llava", "internvl", "gemma3"]
METHODS: list[Any] = ["contribution", "ablation", "gradient-attention", {"name": "attribution-patching", "of": "zero"}]


@pytest.mark.parametrize("family", mostly_long(PICTURED, "qwen2_vl"))
def test_an_image_beside_a_text(family: str) -> None:
    """Without a head, against one whole pass each; the whole image is read in each of them."""
    model, given = loaded(family), {"text": "ab?", "image": picture(28, 28)}
    inputs, sites = model.inputs(model.encode(**given)), examine(model, pictured=True).of("self")
    expected = np.zeros((len(sites), sites[0].heads))
    with torch.no_grad():
        whole = float(model.module(**inputs).logits[0, -1, 7])
        for layer, site in enumerate(sites):
            for head in range(site.heads):

                def remove(part: Any, args: Any, head: int = head, heads: int = site.heads) -> Any:
                    kept = args[0].clone().unflatten(-1, (heads, -1))
                    kept[..., head, :] = 0
                    return kept.flatten(-2), *args[1:]

                handle = model.module.get_submodule(str(site.projection)).register_forward_pre_hook(remove)
                expected[layer, head] = whole - float(model.module(**inputs).logits[0, -1, 7])
                handle.remove()
    e = headscope.effect(model, **given, target=7, method={"name": "ablation", "how": "zero"})
    np.testing.assert_allclose(e.effects, expected, rtol=1e-3, atol=2e-5 * np.abs(expected).max())
    integrated = headscope.effect(model, **given, target=7, method={"name": "integrated-gradients", "steps": 4})
    assert np.isfinite(integrated.effects).all()


def test_another_text_beside_the_same_image() -> None:
    """Patched with itself nothing changes; token ids have no place for an image."""
    model, asked = loaded("llava"), {"image": picture(28, 28), "target": 7, "method": "patching"}
    same = headscope.effect(model, "ab?", against="ab?", **asked)
    assert same.baseline == pytest.approx(same.target.value, rel=1e-5)
    assert np.abs(same.effects).max() < 1e-4
    assert np.abs(headscope.effect(model, "ab?", against="ac?", **asked).effects).max() > 1e-3
    with pytest.raises(InvalidRequest, match="as text") as refused:
        headscope.effect(model, "ab?", against=[1, 2, 3], **asked)
    assert refused.value.pointer == "/against"


def test_a_prefix_that_sees_both_sides_is_continued() -> None:
    """By default at its last token, as in a causal model: it has no mask token."""
    model = loaded("paligemma")
    assert (model.facts.kind, model.facts.predicts) == ("encoder", "next-token")
    assert headscope.effect(model, token_ids=TOKENS, method="ablation").target.position == len(TOKENS) - 1


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_classifies_tokens(method: Any) -> None:
    model = headscope.load(BertForTokenClassification(BertConfig(**SMALL, num_labels=3)).eval())
    with pytest.raises(Unsupported, match="neither tokens nor classes"):
        headscope.effect(model, token_ids=TOKENS, target=1, method=method)


def test_a_model_that_was_trained_with_another_mechanism() -> None:
    """Its predictions are not those of softmax. Attention is tested all the same."""
    model = headscope.load("twin-gpt-hopfield")
    for method in ("contribution", "ablation"):
        with pytest.raises(Unsupported, match="another mechanism"):
            headscope.effect(model, "The keys to the cabinet", method=method)
    scores = headscope.head_scores(model, ["previous-token", "successor"][:1], prompts=1)
    assert scores.scores["previous-token"].max() > 0
    with pytest.raises(Unsupported, match="another mechanism"):
        headscope.head_scores(model, ["successor"], prompts=1)


def test_batteries_of_a_causal_model_that_predicts_no_token() -> None:
    """What it attends to is tested, what it would write is not."""
    torch.manual_seed(0)
    module = GPT2ForSequenceClassification(
        GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, pad_token_id=0)
    )
    scores = headscope.head_scores(headscope.load((module.eval(), _spaced())), prompts=1)
    assert "no output matrix" in scores.missing["successor"]
    assert scores.scores


def test_layers_with_different_numbers_of_heads() -> None:
    """Every head has a number, also where only some layers have it."""
    model = headscope.load(build("dots3_note_text").module)
    scores = headscope.head_scores(model, ["previous-token"], prompts=1)
    found = scores.scores["previous-token"]
    assert (len(scores.layers), len(scores.heads)) == found.shape
    assert len(scores.top("previous-token", found.size)) == np.isfinite(found).sum() < found.size


def test_tokens_that_are_predicted_have_numbers_of_their_own() -> None:
    """Where the decoder has another vocabulary than the encoder."""
    torch.manual_seed(0)
    sizes = {
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
    }
    other = {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
    }
    for reads, writes in ((150, 100), (100, 150)):
        module = MarianMTModel(
            MarianConfig(vocab_size=reads, decoder_vocab_size=writes, **sizes, **other, max_position_embeddings=64)
        )
        model = headscope.load(module.eval())
        given = {"token_ids": [5, 6, 7], "target_ids": [0, 8, 9], "method": "ablation"}
        assert headscope.effect(model, target=writes - 1, **given).target.ids == (writes - 1,)
        with pytest.raises(InvalidRequest, match=f"below {writes}"):
            headscope.effect(model, target=writes, **given)


def _spaced() -> Tokenizer:
    """A tokenizer in the manner of Llama 2: spaces become "▁", one is put before every text, and removed when it is decoded."""
    merges = "h e|T he|▁ The|t he|▁ the|e r|w er|wer e|▁ were"
    pairs = [(left, right) for left, right in (merge.split() for merge in merges.split("|"))]
    words = ["<unk>", "▁", "T", *"abcdefghijklmnopqrstuvwxyz", *("".join(pair) for pair in pairs)]
    bpe = Tokenizer(models.BPE({word: place for place, word in enumerate(words)}, pairs, unk_token="<unk>"))
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bpe.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return bpe


def test_a_target_after_a_space() -> None:
    """The token with its space, where the tokenizer itself puts a space before every text; and it is shown with it."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    module = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes, bos_token_id=None, eos_token_id=None))
    tokenizer = _spaced()
    model = headscope.load((module.eval(), tokenizer))
    for text, name in ((" were", "▁were"), ("were", "were")):
        e = headscope.effect(model, "The", target=text)
        assert (e.target.ids, e.target.texts) == ((tokenizer.token_to_id(name),), (text,))
    ordinary = {tokenizer.token_to_id(name) for name in ("▁were", "▁the", "▁The")}
    assert {*ModelVocabulary(model).draw(np.random.default_rng(0), 3)} == ordinary
