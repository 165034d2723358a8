"""Inputs of every kind: two texts through two stacks, continuations, annotations. Each against the model's own eager attention or generate()."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import headscope
from headscope import Model
from headscope.errors import InvalidRequest, TooManyTokens, Unsupported
from headscope.models import loading, tokens
from headscope.models.generation import Generate
from tests.support.extent import mostly_long

from .texts import TEXTS

CORPUS = [*TEXTS.values(), "The cat sat on the mat because it was tired."]
SOURCE, TARGET = "The cat sat on the mat.", "Die Katze sass da."


def unigram() -> PreTrainedTokenizerFast:
    """As T5's: pieces with a mark for spaces, and </s> behind."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False),
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def byte_level(*, around: bool) -> PreTrainedTokenizerFast:
    """As BART's, with <s> and </s> around a text, or as GPT-2's, with nothing."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special, alphabet = ["<s>", "<pad>", "</s>"], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if around:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>")


def stacks(**more: Any) -> dict[str, Any]:
    """Two encoder layers of 4 heads, three decoder layers of 2, as BART and its relatives name them."""
    return {
        "vocab_size": 400, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
        "init_std": 0.5, **more,
    }  # fmt: skip


def t5() -> Any:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=400, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_decoder_layers=3, num_heads=4,
            pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, initializer_factor=3.0, n_positions=64,
        )
    )  # fmt: skip


def bart() -> Any:
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    return transformers.BartForConditionalGeneration(transformers.BartConfig(**stacks(**ids)))


def marian() -> Any:
    ids = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return transformers.MarianMTModel(transformers.MarianConfig(**stacks(**ids)))


def whisper() -> Any:
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
    sizes = {"max_target_positions": 64, "max_source_positions": 20, "num_mel_bins": 8}
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**stacks(**ids, **sizes), suppress_tokens=None, begin_suppress_tokens=None)
    )


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "t5": (t5, unigram),
    "bart": (bart, lambda: byte_level(around=True)),
    "marian": (marian, unigram),
}


@pytest.fixture(scope="module", params=list(PAIRS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A tiny encoder-decoder from a folder, as from the hub."""
    return from_folder(tmp_path_factory.mktemp(request.param), *PAIRS[request.param])


def from_folder(folder: Path, module: Callable[[], Any], tokenizer: Callable[[], Any]) -> Model:
    torch.manual_seed(0)
    module().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return headscope.load(folder, device="cpu")


def own_attention(model: Model, **inputs: Any) -> Any:
    """The model's own eager forward pass."""
    model.module.set_attn_implementation("eager")
    with torch.no_grad():
        return model.module.eval()(**inputs, output_attentions=True, return_dict=True)


def stacked(layers: Any) -> np.ndarray[Any, Any]:
    return torch.cat(list(layers)).numpy()


# Encoder-decoders


def test_both_sides_are_the_model_s_own(pair: Model) -> None:
    """Encoder, decoder and cross maps, with the decoder's input made by the model's own teacher forcing (labels)."""
    source = pair.encode(SOURCE)
    ids = torch.tensor([[token.id for token in source.tokens]])
    labels = torch.tensor([pair.tokenizer.encode(TARGET).ids])  # type: ignore[union-attr]
    own = own_attention(pair, input_ids=ids, labels=labels)
    for kind, layers in (
        ("self", own.encoder_attentions),
        ("encoder", own.encoder_attentions),
        ("decoder", own.decoder_attentions),
        ("cross", own.cross_attentions),
    ):
        a = headscope.analyze(pair, SOURCE, TARGET, kind=kind, lenses=("weights",))
        np.testing.assert_allclose(a.maps["weights"], stacked(layers), atol=1e-5, rtol=0)
        tower = pair.facts.tower(kind)
        assert a.maps["weights"].shape[:2] == (tower.layers, tower.heads)


def test_the_decoder_s_tokens(pair: Model) -> None:
    """The start token, then the second text without its end; offsets in that text, words counted on from the first."""
    encoded = pair.encode(SOURCE, TARGET, kind="cross")
    assert encoded.target is not None
    start, *rest = encoded.target
    assert (start.id, start.kind, start.word) == (pair.module.config.decoder_start_token_id, "special", None)
    ordinary = [token for token in rest if token.kind != "special"]
    assert "".join(TARGET[t.start : t.end].strip() for t in ordinary) == TARGET.replace(" ", "")
    assert {token.segment for token in encoded.target} == {1}
    last = max(token.word for token in encoded.tokens if token.word is not None)
    assert sorted({token.word for token in ordinary if token.word is not None}) == list(range(last + 1, last + 6))
    axes = encoded.axes("cross")
    assert (list(axes.queries), list(axes.keys)) == (encoded.target, encoded.tokens)
    assert encoded.axes("decoder").same
    assert encoded.axes("self").same


def test_a_decoder_without_a_text_is_refused(pair: Model) -> None:
    """And told what to give; the encoder alone needs none."""
    for kind in ("decoder", "cross"):
        with pytest.raises(InvalidRequest, match="second text"):
            pair.encode(SOURCE, kind=kind)
    assert pair.encode(SOURCE, kind="encoder").target is None
    with pytest.raises(InvalidRequest):
        pair.encode(SOURCE).axes("cross")
    with pytest.raises(InvalidRequest):
        pair.encode(SOURCE, TARGET, generate=Generate(max_new_tokens=3))


def test_ids_for_both_sides(pair: Model) -> None:
    """Taken as they are, without a start token; ids outside the vocabulary point to their field."""
    encoded = pair.encode(token_ids=[5, 6, 7], target_ids=[0, 8], kind="cross")
    assert [t.id for t in encoded.tokens] == [5, 6, 7]
    assert [t.id for t in encoded.target or ()] == [0, 8]
    with pytest.raises(InvalidRequest) as refused:
        pair.encode(token_ids=[5], target_ids=[10**6], kind="cross")
    assert refused.value.pointer == "/target_ids"


@pytest.mark.parametrize("pair", mostly_long(PAIRS, "bart"), indirect=True)
def test_what_an_encoder_decoder_writes(pair: Model) -> None:
    """The decoder's tokens are those of the model's own greedy generate(), with exact offsets in what it wrote."""
    encoded = pair.encode(SOURCE, kind="cross", generate=Generate(max_new_tokens=12))
    ids = torch.tensor([[token.id for token in encoded.tokens]])
    own = pair.module.generate(ids, max_new_tokens=12, do_sample=False, num_beams=1, use_cache=False)[0].tolist()
    assert [token.id for token in encoded.target or ()] == own
    assert encoded.generated == len(own) - 1
    assert_offsets(encoded.target or [], encoded.target_text or "", pair)
    a = headscope.analyze(pair, SOURCE, kind="decoder", generate={"max_new_tokens": 12}, lenses=("weights",))
    layers = own_attention(pair, input_ids=ids, decoder_input_ids=torch.tensor([own])).decoder_attentions
    np.testing.assert_allclose(a.maps["weights"], stacked(layers), atol=1e-5, rtol=0)


def assert_offsets(found: list[Any], text: str, model: Model) -> None:
    """Every ordinary token's text is what stands at its offsets, and together they spell what the ids decode to."""
    for token in found:
        if token.kind != "special" and token.end > token.start:
            assert token.text in (text[token.start : token.end], model.unknown)
    ids = [token.id for token in found if token.kind != "special"]
    assert model.tokenizer is not None
    assert model.tokenizer.decode(ids, skip_special_tokens=False).strip() == text.strip()


def test_both_texts_may_fill_the_model_and_no_more(pair: Model) -> None:
    """Each side has its own limit; max_tokens cuts both."""
    most = pair.facts.tower("decoder").max_tokens
    if most is not None:
        with pytest.raises(TooManyTokens) as refused:
            pair.encode(SOURCE, "word " * 200, kind="cross")
        assert refused.value.pointer == "/text_pair"
        with pytest.raises(TooManyTokens):
            pair.encode("word " * 200, TARGET)
    cut = pair.encode("word " * 200, "word " * 200, kind="cross", max_tokens=9)
    assert (len(cut.tokens), len(cut.target or ())) == (9, 9)


def test_probes_tell_the_stacks_apart(pair: Model) -> None:
    """The self-check's input has another length for the decoder."""
    probe = pair.probe()
    assert (len(probe.tokens), len(probe.target or ())) == (12, 9)


def test_whisper_reads_a_text_over_silence() -> None:
    """The decoder's maps are those of the model after a spectrogram of silence; what would need sound is refused with the reason."""
    torch.manual_seed(0)
    model = headscope.load(whisper(), byte_level(around=True))
    a = headscope.analyze(model, TARGET, kind="decoder", lenses=("weights",))
    features = torch.full((1, 8, 40), -1.5)
    ids = [token.id for token in a.tokens]
    own = own_attention(model, input_features=features, decoder_input_ids=torch.tensor([ids]))
    np.testing.assert_allclose(a.maps["weights"], stacked(own.decoder_attentions), atol=1e-5, rtol=0)
    assert "no-audio" in [warning.code for warning in a.warnings]
    # <s> is the start token already, so it is not put in front a second time
    assert ids == model.tokenizer.encode(TARGET).ids[:-1]  # type: ignore[union-attr]
    for kind in ("self", "encoder", "cross"):
        with pytest.raises(Unsupported, match="audio"):
            model.encode(TARGET, kind=kind)
    with pytest.raises(Unsupported):
        model.encode(TARGET, kind="decoder", generate=Generate(max_new_tokens=2))


def test_the_target_is_written_as_a_target() -> None:
    """A tokenizer that writes the two languages differently does so here."""

    class Bilingual(PreTrainedTokenizerFast):  # type: ignore[misc]
        tgt_lang = "de"

        def _switch_to_target_mode(self) -> None:
            self.backend_tokenizer.post_processor = processors.TemplateProcessing(
                single="<pad> $A </s>", special_tokens=[("<pad>", 1), ("</s>", 2)]
            )

        def _switch_to_input_mode(self) -> None:
            self.backend_tokenizer.post_processor = processors.TemplateProcessing(
                single="$A </s>", special_tokens=[("</s>", 2)]
            )

    tokenizer = Bilingual(
        tokenizer_object=byte_level(around=False).backend_tokenizer, eos_token="</s>", pad_token="<pad>"
    )
    tokenizer._switch_to_input_mode()
    encoded = loading.wrap(bart(), tokenizer).encode(SOURCE, TARGET, kind="cross")
    assert (encoded.tokens[0].text, encoded.tokens[-1].text) == ("The", "</s>")
    assert [token.text for token in encoded.target or ()][:2] == ["</s>", "<pad>"]


def test_tokenizers_without_offsets_are_told_apart(tmp_path: Path) -> None:
    """A folder with SentencePiece files only still loads, for token_ids; a text is refused with the reason."""
    marian().save_pretrained(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}')
    model = headscope.load(tmp_path, device="cpu")
    with pytest.raises(Unsupported, match="offsets"):
        model.encode(SOURCE)
    assert len(model.encode(token_ids=[4, 5]).tokens) == 2


# Continuations


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A tiny GPT-2 from a folder."""
    config = transformers.GPT2Config(
        vocab_size=400, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.5, bos_token_id=0, eos_token_id=2
    )  # fmt: skip
    make = lambda: transformers.GPT2LMHeadModel(config)  # noqa: E731
    return from_folder(tmp_path_factory.mktemp("gpt2"), make, lambda: byte_level(around=False))


@pytest.mark.parametrize("name", ["sentence", "one word", "emoji", "chinese", "spaces"])
def test_continuations_are_those_of_generate(decoder: Model, name: str) -> None:
    """Greedy, token for token, and spelled exactly: a random model writes half characters and broken bytes."""
    text = TEXTS[name][:30]
    encoded = decoder.encode(text, generate=Generate(max_new_tokens=20))
    prompt = decoder.encode(text)
    ids = torch.tensor([[token.id for token in prompt.tokens]])
    own = decoder.module.generate(ids, max_new_tokens=20, do_sample=False)[0].tolist()
    assert [token.id for token in encoded.tokens] == own
    assert encoded.generated == len(own) - len(prompt.tokens)
    assert (encoded.text or "").startswith(text)
    assert_offsets(encoded.tokens, encoded.text or "", decoder)
    starts = [token.start for token in encoded.tokens if token.kind != "special"]
    assert starts == sorted(starts)


def test_sampling_depends_on_its_seed_alone(decoder: Model) -> None:
    """The same seed writes the same text, whatever ran before; another seed another one. The global generator is left as it was."""
    asked = Generate(max_new_tokens=20, do_sample=True, seed=7, temperature=1.5, top_k=100, top_p=0.9)
    state = torch.random.get_rng_state()
    first = decoder.encode("The cat", generate=asked).tokens
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(3)
    assert decoder.encode("The cat", generate=asked).tokens == first
    assert decoder.encode("The cat", generate=asked.model_copy(update={"seed": 8})).tokens != first


def test_a_model_in_training_writes_without_dropout(decoder: Model) -> None:
    """And is in training again afterwards."""
    decoder.module.train()
    first = decoder.encode("The cat", generate=Generate(max_new_tokens=10)).tokens
    assert decoder.module.training
    decoder.module.eval()
    assert decoder.encode("The cat", generate=Generate(max_new_tokens=10)).tokens == first


def test_the_model_s_length_ends_a_continuation(decoder: Model) -> None:
    """It stops where the model's positions end; a text that fills them already is refused."""
    full = decoder.encode("The cat", generate=Generate(max_new_tokens=4096))
    assert len(full.tokens) == 64 or full.tokens[-1].id == 2
    with pytest.raises(TooManyTokens):
        decoder.encode(token_ids=[5] * 64, generate=Generate(max_new_tokens=1))
    assert len(decoder.encode(token_ids=[5] * 63, generate=Generate(max_new_tokens=9)).tokens) == 64


def test_the_end_token_ends_a_continuation(decoder: Model) -> None:
    """It appears in the maps as a special token."""
    bias = decoder.module.lm_head
    hook = bias.register_forward_hook(lambda _m, _i, out: out + 1e4 * torch.nn.functional.one_hot(torch.tensor(2), 400))
    try:
        encoded = decoder.encode("The cat", generate=Generate(max_new_tokens=9))
    finally:
        hook.remove()
    assert encoded.generated == 1
    assert (encoded.tokens[-1].text, encoded.tokens[-1].kind) == ("</s>", "special")


@pytest.mark.parametrize(
    ("own", "fails"),
    [
        ({"num_beams": 4, "do_sample": True, "temperature": 0.3, "max_time": 1e-9, "max_length": 3}, False),
        ({"cache_implementation": "quantized", "stop_strings": ["a"], "min_length": 500}, False),
        ({"forced_eos_token_id": 99_999}, True),
    ],
    ids=["overruled", "harmless", "broken"],
)
def test_settings_of_a_model_s_own(own: dict[str, Any], fails: bool, tmp_path: Path) -> None:
    """What makes writing random or slow does not count; what makes it impossible is an error of ours."""
    make = lambda: transformers.GPT2LMHeadModel(  # noqa: E731
        transformers.GPT2Config(vocab_size=400, n_embd=32, n_layer=1, n_head=4, bos_token_id=0, eos_token_id=2)
    )
    model = from_folder(tmp_path, make, lambda: byte_level(around=False))
    plain = [token.id for token in model.encode("The cat", generate=Generate(max_new_tokens=4)).tokens]
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **own}))
    model = headscope.load(tmp_path, device="cpu")
    if fails:
        with pytest.raises(Unsupported, match="generation fails"):
            model.encode("The cat", generate=Generate(max_new_tokens=4))
    else:
        found = model.encode("The cat", generate=Generate(max_new_tokens=4)).tokens
        assert [token.id for token in found] == plain


def test_models_that_can_not_continue(minilm: Model) -> None:
    """Encoders, and decoders without a head."""
    with pytest.raises(Unsupported):
        minilm.encode("The cat", generate=Generate(max_new_tokens=1))
    bare = loading.wrap(transformers.GPT2Model(transformers.GPT2Config(vocab_size=40, n_embd=8, n_layer=1, n_head=2)))
    with pytest.raises(Unsupported):
        bare.encode(token_ids=[1], generate=Generate(max_new_tokens=1))


def test_characters_of_several_tokens_in_a_continuation() -> None:
    """Bytes of one character share its place, as in a text that was typed."""
    tokenizer = tokens.prepare(byte_level(around=False).backend_tokenizer)
    typed = tokens.encode(tokenizer, "a 🦩 b")
    first = tokens.encode(tokenizer, "a")
    grown = tokens.extend(tokenizer, first, [token.id for token in typed.tokens[1:]], frozenset())
    assert grown.text == "a 🦩 b"
    assert [(t.text, t.start, t.end, t.word, t.kind) for t in grown.tokens] == [
        (t.text, t.start, t.end, t.word, t.kind) for t in typed.tokens
    ]


TOKENIZERS = {"byte-level": lambda: byte_level(around=False), "unigram": unigram}
PREPARED = {name: tokens.prepare(make().backend_tokenizer) for name, make in TOKENIZERS.items()}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.sampled_from(list(PREPARED)), st.lists(st.integers(3, 399), min_size=1, max_size=25))
def test_any_ids_are_spelled_as_the_tokenizer_spells_them(name: str, ids: list[int]) -> None:
    """Token by token gives the text of all of them together, also where bytes make no character; places are in order."""
    grown = tokens.extend(PREPARED[name], tokens.Encoded([], [], text=""), ids, frozenset())
    assert grown.text == PREPARED[name].decode(ids, skip_special_tokens=False)
    starts = [token.start for token in grown.tokens]
    assert len(starts) == len(ids)
    assert starts == sorted(starts)


# Annotations


def test_annotations_per_word_and_per_token(minilm: Model) -> None:
    """One per word of both texts, or one per token; every token of a word gets the word's."""
    words = minilm.encode("Unbelievable cats", "sat.", pos=["JJ", "NNS", "VB", "."], labels=["O", "B-X", "O", "O"])
    for token in words.tokens:
        expected = (
            [("JJ", "O"), ("NNS", "B-X"), ("VB", "O"), (".", "O")][token.word]
            if token.word is not None
            else (None, None)
        )
        assert (token.pos, token.label) == expected
    count = len(words.tokens)
    each = minilm.encode("Unbelievable cats", "sat.", pos=[str(index) for index in range(count)])
    assert [token.pos for token in each.tokens] == [str(index) for index in range(count)]
    with pytest.raises(InvalidRequest, match=rf"2 entries.* 4 words and {count} tokens") as refused:
        minilm.encode("Unbelievable cats", "sat.", labels=["a", "b"])
    assert refused.value.pointer == "/labels"


@pytest.mark.parametrize("pair", mostly_long(PAIRS, "bart"), indirect=True)
def test_annotations_of_both_stacks_and_of_continuations(pair: Model, decoder: Model) -> None:
    """Words of the decoder's text count on; what the model writes itself has none to give."""
    encoded = pair.encode("The cat", "Die Katze", kind="cross", pos=["a", "b", "c", "d"])
    assert {token.pos for token in encoded.target or () if token.word is not None} == {"c", "d"}
    grown = decoder.encode("The cat", generate=Generate(max_new_tokens=5), pos=["a", "b"])
    assert [token.pos for token in grown.tokens[:2]] == ["a", "b"]
