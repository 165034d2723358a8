"""Offsets, words, segments and kinds for every kind of tokenizer, each trained here on a few sentences."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import headscope
from headscope import Model
from headscope.core.text import find_words
from headscope.core.tokens import Token
from headscope.errors import InvalidRequest, InvalidText, TooManyTokens
from headscope.models import tokens
from tests.support.forks import forked
from tests.support.variants import variants

from .texts import TEXTS

CORPUS = [*TEXTS.values(), "The quick brown fox jumps over the lazy dog. " * 3, "unbelievable believing believers"]


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    # As published tokenizers often are: cutting and padding, which must not happen here.
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    return tokenizer


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"]
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def sentencepiece() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        CORPUS, trainers.UnigramTrainer(vocab_size=600, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>")
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "wordpiece": wordpiece,
    "byte-level": byte_level,
    "sentencepiece": sentencepiece,
}
UNKNOWN = {"wordpiece": "[UNK]", "byte-level": None, "sentencepiece": "<unk>"}


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> tuple[Tokenizer, str | None]:
    """A prepared tokenizer of each kind and the name of its unknown token."""
    return tokens.prepare(KINDS[request.param]()), UNKNOWN[request.param]


@variants("name", TEXTS)
def test_invariants(kind: tuple[Tokenizer, str | None], name: str) -> None:
    """Text is what stands at the offsets, nothing visible is lost, no marker of a tokenizer is shown, words are in order."""
    tokenizer, unknown = kind
    check(tokens.encode(tokenizer, TEXTS[name], unknown=unknown).tokens, TEXTS[name], unknown)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc", "Cf")), min_size=1, max_size=40))
def test_invariants_on_any_text(text: str) -> None:
    """The same for random text."""
    for name, make in PREPARED.items():
        check(tokens.encode(make, text, unknown=UNKNOWN[name]).tokens, text, UNKNOWN[name], whole=name == "byte-level")


PREPARED = {name: tokens.prepare(make()) for name, make in KINDS.items()}


def check(found: list[Token], text: str, unknown: str | None, *, whole: bool = True) -> None:
    ordinary = [token for token in found if token.kind != "special"]
    for token in ordinary:
        assert 0 <= token.start <= token.end <= len(text)
        assert token.text in (text[token.start : token.end], unknown) or token.start == token.end
        assert not any(mark in token.text for mark in ("Ġ", "Ċ", "▁", "##")) or token.text in text
    assert [token.word for token in ordinary] == sorted(token.word or 0 for token in ordinary)
    covered = {i for token in ordinary for i in range(token.start, token.end)}
    missing = {i for i, char in enumerate(text) if not char.isspace()} - covered
    if whole:
        assert not {i for i in missing if text[i].isalnum()}
    for token in found:
        assert (token.word is None) == (token.kind == "special")


def shown(found: list[Token]) -> list[tuple[str, str, int | None]]:
    return [(token.text, token.kind, token.word) for token in found]


def test_minilm_example(minilm: Model) -> None:
    """Pieces, punctuation and specials of a known tokenizer, in the text's own spelling."""
    found = minilm.encode("The cat's unbelievably naïve.").tokens
    assert shown(found) == [
        ("[CLS]", "special", None),
        ("The", "word", 0),
        ("cat", "word", 1),
        ("'", "punct", 2),
        ("s", "word", 3),
        ("un", "subword", 4),
        ("bel", "subword", 4),
        ("ie", "subword", 4),
        ("va", "subword", 4),
        ("bly", "subword", 4),
        ("naïve", "word", 5),
        (".", "punct", 6),
        ("[SEP]", "special", None),
    ]
    assert [(token.start, token.end) for token in found][1:5] == [(0, 3), (4, 7), (7, 8), (8, 9)]


def test_pairs(minilm: Model) -> None:
    """Offsets count in the text of the token's segment; words go on counting."""
    encoded = minilm.encode("A dog.", "Two cats.")
    assert [(t.text, t.segment, t.start, t.word) for t in encoded.tokens] == [
        ("[CLS]", 0, 0, None),
        ("A", 0, 0, 0),
        ("dog", 0, 2, 1),
        (".", 0, 5, 2),
        ("[SEP]", 0, 0, None),
        ("Two", 1, 0, 3),
        ("cats", 1, 4, 4),
        (".", 1, 8, 5),
        ("[SEP]", 1, 0, None),
    ]
    assert encoded.type_ids == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_special_tokens_typed_by_the_user_are_text(minilm: Model) -> None:
    """`[SEP]` in a text is three ordinary tokens, so a text can't pretend to be two."""
    found = minilm.encode("one [SEP] two").tokens
    assert [token.kind for token in found].count("special") == 2
    assert [token.text for token in found] == ["[CLS]", "one", "[", "SEP", "]", "two", "[SEP]"]


def test_unknown_characters_keep_the_unknown_token_s_name(minilm: Model) -> None:
    """What the model saw is shown, not what was typed; the offsets say where."""
    found = minilm.encode("go 🚀 now").tokens
    assert [(t.text, t.start, t.end, t.kind) for t in found if t.text == "[UNK]"] == [("[UNK]", 3, 4, "word")]


def test_unknown_tokens_of_a_unigram_model_have_its_name() -> None:
    """The tokenizer itself calls them by their characters. So they are shown in a text, in ids, and in a continuation."""
    tokenizer = PREPARED["sentencepiece"]
    encoded = tokens.encode(tokenizer, "go ☃☃ now", unknown="<unk>")
    unknown = next(token for token in encoded.tokens if token.id == tokenizer.token_to_id("<unk>"))
    assert (unknown.text, unknown.start, unknown.end, unknown.kind) == ("<unk>", 3, 5, "word")
    ids = [token.id for token in encoded.tokens]
    special = frozenset({0, 1})
    given = tokens.from_ids(tokenizer, ids, special, 600)
    grown = tokens.extend(tokenizer, encoded, ids, special, "<unk>")
    for found in (given.tokens, grown.tokens[: len(ids)], grown.tokens[len(ids) :]):
        assert [(t.text, t.kind) for t in found if t.id == unknown.id] == [("<unk>", "word")]


def test_the_unknown_token_is_special_if_it_has_another_purpose(minilm: Model) -> None:
    """Its kind does not depend on how ids arrive. GPT-2's unknown token also ends its texts."""
    written = minilm.encode("go 🚀 now").tokens
    given = minilm.encode(token_ids=[token.id for token in written]).tokens
    assert [token.kind for token in given] == [token.kind for token in written]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), unk_token="<|endoftext|>", eos_token="<|endoftext|>"
    )
    module = GPT2LMHeadModel(GPT2Config(vocab_size=600, n_embd=8, n_layer=1, n_head=1))
    assert headscope.load(module, tokenizer).special_ids == {0}


def test_a_space_that_sentencepiece_adds_is_none_of_the_text() -> None:
    """It is shown as a space, and not as the character after it; ids give the spaces between words."""
    tokenizer = PREPARED["sentencepiece"]
    space = tokenizer.token_to_id("▁")
    found = tokens.encode(tokenizer, "☃ fox", unknown="<unk>").tokens
    assert [(t.text, t.start, t.end, t.word) for t in found[1:3]] == [(" ", 0, 0, 0), ("<unk>", 0, 1, 0)]
    assert found[1].id == space
    ids = [token.id for token in tokens.encode(tokenizer, "quick fox").tokens]
    given = tokens.from_ids(tokenizer, [*ids[:-1], space], frozenset({0, 1}), 600)
    assert given.text == "<s> quick fox "
    assert given.tokens[-1].text == " "


def test_a_text_that_was_cut_is_continued_after_the_last_token_that_was_read() -> None:
    """The model never saw the rest. A whole text keeps what no token covers."""
    tokenizer = PREPARED["byte-level"]
    added = [token.id for token in tokens.encode(tokenizer, " lazy dog").tokens]
    for most, text in ((2, "The quick lazy dog"), (None, "The quick brown fox lazy dog")):
        encoded = tokens.encode(tokenizer, "The quick brown fox", max_tokens=most)
        grown = tokens.extend(tokenizer, encoded, added, frozenset())
        assert grown.text == text
        assert [text[token.start : token.end] for token in grown.tokens] == [token.text for token in grown.tokens]
    lower = PREPARED["wordpiece"]
    assert tokens.extend(lower, tokens.encode(lower, "fox \n"), [], frozenset()).text == "fox \n"


def test_bytes_of_one_character_are_its_pieces() -> None:
    """Byte-level tokens of one emoji share its offsets and its word."""
    found = tokens.encode(PREPARED["byte-level"], "a 🦩 b").tokens
    pieces = [token for token in found if token.start == 2]
    assert len(pieces) > 1
    assert {(token.text, token.kind, token.word) for token in pieces} == {("🦩", "subword", 1)}


@variants(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("don't", ["don", "'", "t"]),
        ("東京タワー", ["東", "京", "タワー"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("مرحبا بك", ["مرحبا", "بك"]),
        ("👩🏽‍🚀🚀 ok", ["👩🏽‍🚀", "🚀", "ok"]),
        ("🇫🇷🇩🇪", ["🇫🇷", "🇩🇪"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("a  b\tc\n", ["a", "b", "c"]),
        ("3.14€", ["3", ".", "14", "€"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    """Runs without spaces; punctuation and ideographs alone; an emoji sequence or a flag is one word."""
    assert [text[start:end] for start, end in find_words(text)] == words


def test_no_cutting_unless_asked(minilm: Model) -> None:
    """MiniLM's own file cuts at 128 tokens and pads; here the length decides: all of it, what was asked, or a refusal."""
    text = "word " * 300
    assert len(minilm.encode(text).tokens) == 302
    cut = minilm.encode(text, max_tokens=10).tokens
    assert len(cut) == 10
    assert cut[-1].text == "[SEP]"
    for text_pair in (None, text):
        with pytest.raises(InvalidRequest, match="special tokens"):
            minilm.encode(text, text_pair, max_tokens=1)
    with pytest.raises(TooManyTokens) as refused:
        minilm.encode("word " * 600)
    assert (refused.value.limit, refused.value.actual) == (512, 602)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "a\0b", "half \ud800 pair"])
def test_what_is_not_text_is_refused(minilm: Model, text: str) -> None:
    """Each with one sentence that says what to do."""
    with pytest.raises(InvalidText):
        minilm.encode(text)


def test_token_ids(minilm: Model) -> None:
    """Ids are taken as they are; ids outside the vocabulary are refused."""
    found = minilm.encode(token_ids=[101, 7592, 2088, 102]).tokens
    assert [(token.text, token.kind) for token in found] == [
        ("[CLS]", "special"),
        ("hello", "word"),
        ("world", "word"),
        ("[SEP]", "special"),
    ]
    for bad in ([-1], [10**6]):
        with pytest.raises(InvalidRequest):
            minilm.encode(token_ids=bad)


def test_tags_of_words_that_are_cut_off() -> None:
    """Tags of all words of a text fit also when only its first tokens are kept, however many tokens that are."""
    text, tags = "The quick brown fox jumps.", ["a", "b", "c", "d", "e", "f"]
    for most in range(3, 9):
        cut = tokens.encode(tokens.prepare(wordpiece()), text, max_tokens=most)
        marked = tokens.annotate(cut, tags, tags).tokens
        starts = [0, 4, 10, 16, 20, 25]
        for token in marked:
            word = None if token.kind == "special" else max(n for n, start in enumerate(starts) if start <= token.start)
            assert (token.pos, token.label) == ((None, None) if word is None else (tags[word],) * 2)


def test_pairs_are_cut_as_tokenizers_cut_them() -> None:
    """The longer text loses its last tokens first."""
    tokenizer, generator = wordpiece(), random.Random(0)
    tokenizer.no_padding()
    mine = tokens.prepare(tokenizer)
    for _ in range(300):
        texts, most = ("a " * generator.randint(0, 9), "dog " * generator.randint(0, 9)), generator.randint(3, 20)
        tokenizer.enable_truncation(most)
        theirs, ours = tokenizer.encode(*texts), tokens.encode(mine, *texts, max_tokens=most)
        assert [token.id for token in ours.tokens] == theirs.ids
        assert ours.type_ids == theirs.type_ids
        assert [warning.code for warning in ours.warnings] == ["cut"] * bool(theirs.overflowing)


def _cut_a_long_pair(words: int) -> int:
    """Cut two texts in a process that gets half a gigabyte more than it has."""
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, resource.RLIM_INFINITY))
    tokenizer = tokens.prepare(wordpiece())
    return len(tokens.encode(tokenizer, "a " * words, "dog " * words, max_tokens=4).tokens)


def test_what_is_cut_off_a_pair_takes_no_memory() -> None:
    """Tokenizers would make an input of each part of one text beside each of the other: two million of these."""
    assert forked(_cut_a_long_pair, [1_500]) == [4]


def test_tags_of_words_that_share_a_token() -> None:
    """Where the tokenizer joins two words, tags of all words fit, and the token has that of its first word."""
    tokenizer = Tokenizer(models.WordLevel({"cats": 0, "ok..": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    encoded = tokens.encode(tokens.prepare(tokenizer), "cats ok..")
    assert len({token.word for token in encoded.tokens}) == 2
    assert [token.pos for token in tokens.annotate(encoded, ["N", "A", ".", "."], None).tokens] == ["N", "A"]
