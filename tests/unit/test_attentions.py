"""Attention given as arrays: analysed like that of a model, and rejected if it is not attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import MistralConfig, MistralForCausalLM

import headscope
from headscope import Model
from headscope.core.words import word_groups
from headscope.errors import HeadscopeError, InvalidRequest, Unknown, Unsupported
from headscope.library.from_attentions import from_attentions, parse_pieces
from tests.support.variants import variants

from .conftest import eager, projected, relative

LAYERS, HEADS, N = 2, 4, 12


def weights(seed: int = 0, n: int = N, keys: int | None = None, rule: str = "all") -> list[NDArray[Any]]:
    generator = np.random.default_rng(seed)
    i, j = np.indices((n, keys or n))
    allowed = {"all": j >= 0, "prefix": j <= i, "window": (j <= i) & (j > i - 4), "around": abs(i - j) < 3}[rule]
    logits = np.where(allowed, np.exp(generator.normal(0, 2, (LAYERS, HEADS, n, keys or n))), 0)
    return list((logits / logits.sum(-1, keepdims=True)).astype(np.float32))


def values(seed: int = 1, n: int = N, groups: int = HEADS, width: int = 5) -> list[NDArray[Any]]:
    return list(np.random.default_rng(seed).normal(size=(LAYERS, groups, n, width)).astype(np.float32))


def names(n: int = N) -> list[str]:
    return [f"token{i}" for i in range(n)]


def test_the_same_as_an_analysis_of_the_model(tiny: Model, ids: Any) -> None:
    """The output of a model's eager pass gives the same maps and measures as analyze, including sliding windows and causal masks."""
    chosen = ids(20)
    theirs = eager(tiny, {"input_ids": torch.tensor([chosen])})
    measures = ("entropy", "participation_ratio", "rank")
    a = headscope.analyze(tiny, token_ids=chosen, lenses=("weights", "rollout"), measures=measures)
    b = from_attentions(theirs.attentions, a.tokens, lenses=("weights", "rollout"), measures=measures)
    assert b.tokens == a.tokens
    assert b.causal == a.causal
    np.testing.assert_array_equal(b.keys, a.keys)
    for lens in ("weights", "rollout"):
        np.testing.assert_allclose(b.maps[lens], a.maps[lens], atol=2e-5)
    for name in measures:
        np.testing.assert_allclose(b.measures[name]["weights"], a.measures[name]["weights"], rtol=1e-3, atol=1e-4)


def test_windows_of_a_real_model_are_found(ids: Any) -> None:
    """The number of keys that each query may see is what the model's own mask says."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, sliding_window=5, initializer_range=0.5,
    )  # fmt: skip
    model = headscope.load(MistralForCausalLM(config))
    chosen = ids(20)
    a = headscope.analyze(model, token_ids=chosen)
    b = from_attentions(eager(model, {"input_ids": torch.tensor([chosen])}).attentions, a.tokens)
    np.testing.assert_array_equal(b.keys, a.keys)
    np.testing.assert_array_equal(b.keys[0], np.minimum(np.arange(20) + 1, 5))


@variants("rule", ["all", "prefix", "window", "around"])
@variants("groups", [1, 2, 4])
def test_values_give_effective_attention(rule: str, groups: int) -> None:
    """Compared with a decomposition per row on the keys that the row may attend to, inferred from the zeros."""
    A, V = weights(rule=rule), values(groups=groups)
    a = from_attentions(A, names(), V, measures=("null_share",))
    allowed = np.stack(A).any((0, 1))
    for layer in range(LAYERS):
        expected = projected(A[layer], V[layer].repeat(HEADS // groups, 0), allowed)
        assert relative(a.maps["effective"][layer], expected) < 1e-5
    np.testing.assert_array_equal(a.keys, np.broadcast_to(allowed.sum(-1), (LAYERS, N)))
    assert a.causal == (rule in ("prefix", "window"))
    assert a.measures["null_share"]["weights"].shape == (LAYERS, HEADS)


def test_causal_can_be_said() -> None:
    """causal=False reads a triangular map as one whose queries could see everything; causal=True checks that they don't."""
    A, V = weights(rule="prefix"), values()
    free = from_attentions(A, names(), V, causal=False)
    assert relative(free.maps["effective"][0], projected(A[0], V[0], np.ones((N, N), bool))) < 1e-5
    np.testing.assert_array_equal(
        from_attentions(A, names(), V, causal=True).maps["effective"], from_attentions(A, names(), V).maps["effective"]
    )
    assert free.id != from_attentions(A, names(), V).id
    with pytest.raises(InvalidRequest, match="later"):
        from_attentions(weights(), names(), causal=True)


def test_causal_is_said_in_words_that_are_understood() -> None:
    """False of numpy is False; anything else but a boolean is refused, as it would decide otherwise than meant."""
    A = weights(rule="prefix")
    assert not from_attentions(A, names(), causal=np.False_).causal
    assert from_attentions(A, names(), causal=np.True_).causal
    for causal in (0, 1, "no"):
        with pytest.raises(InvalidRequest, match="causal must be True, False or None"):
            from_attentions(A, names(), causal=causal)  # type: ignore[arg-type]


def test_scattered_zeros_hide_nothing() -> None:
    """Small weights that are exactly 0 do not make a mask."""
    A = weights()
    for layer in A:
        layer[:, 3, 7] = 0
        layer /= layer.sum(-1, keepdims=True)
    assert (from_attentions(A, names()).keys == N).all()


@variants("form", ["numpy", "batch", "torch", "lists", "stacked", "half", "gradient", "sparse", "big", "long"])
def test_every_form_of_array(form: str) -> None:
    """Arrays, tensors and lists give the same numbers."""
    plain = weights()
    given: Any = {
        "numpy": lambda: plain,
        "batch": lambda: tuple(torch.as_tensor(one)[None] for one in plain),
        "torch": lambda: [torch.as_tensor(one) for one in plain],
        "lists": lambda: [one.tolist() for one in plain],
        "stacked": lambda: np.stack(plain),
        "half": lambda: [torch.as_tensor(one).bfloat16() for one in plain],
        "gradient": lambda: [torch.as_tensor(one).requires_grad_() for one in plain],
        "sparse": lambda: [torch.as_tensor(one).to_sparse() for one in plain],
        "big": lambda: [one.astype(">f4") for one in plain],
        "long": lambda: [one.astype(np.longdouble) for one in plain],
    }[form]()
    a = from_attentions(given, names())
    np.testing.assert_allclose(a.maps["weights"], np.stack(plain), atol=4e-3 if form == "half" else 1e-7)
    assert a.layers == [0, 1]
    assert a.heads == [0, 1, 2, 3]


def test_the_id_names_the_content() -> None:
    """Equal content, equal id; another number, token or request, another one."""
    A = weights()
    first = from_attentions(A, names()).id
    assert from_attentions([one.copy() for one in A], iter(names())).id == first
    other = [A[0], np.roll(A[1], 1, 0)]
    for changed in (
        from_attentions(other, names()),
        from_attentions(A, [*names()[:-1], "end"]),
        from_attentions(A, names(), measures=()),
        from_attentions(A, names(), values()),
    ):
        assert changed.id != first


def test_it_can_be_saved_and_opened(tmp_path: Path) -> None:
    a = from_attentions(weights(), names(), values(), measures=("entropy", "rank"))
    a.save(tmp_path / "a.safetensors")
    b = headscope.open(tmp_path / "a.safetensors")
    assert (b.id, b.tokens, b.layers) == (a.id, a.tokens, a.layers)
    np.testing.assert_array_equal(b.maps["effective"], a.maps["effective"])


def test_cross_attention_names_its_keys() -> None:
    A = weights(n=4, keys=7)
    a = from_attentions(A, names(4), key_tokens=[f"key{i}" for i in range(7)])
    assert a.maps["weights"].shape == (LAYERS, HEADS, 4, 7)
    assert a.kind == "cross"
    with pytest.raises(InvalidRequest, match="key_tokens"):
        from_attentions(A, names(4))
    with pytest.raises(Unsupported):
        from_attentions(A, names(4), key_tokens=names(7), lenses=("rollout",))


def test_rows_may_sum_to_less_than_1_and_that_is_said() -> None:
    a = from_attentions([one * 0.8 for one in weights()], names())
    assert "sink" in {warning.code for warning in a.warnings}
    np.testing.assert_allclose(a.maps["weights"].sum(-1), 0.8, rtol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_that_a_model_was_given_is_found(tiny: Model, ids: Any, side: str) -> None:
    """Padded on either side, in encoders and decoders; the same maps without the padding give no warning."""
    kept = slice(52, 64) if side == "left" else slice(0, 12)
    mask = torch.zeros(1, 64, dtype=torch.long)
    mask[:, kept] = 1
    padded = eager(tiny, {"input_ids": torch.tensor([ids(64)]), "attention_mask": mask}).attentions
    [warning] = [one for one in from_attentions(padded, names(64)).warnings if one.code == "padding"]
    assert "52 of 64 keys" in warning.message
    assert f"to {kept.start}:{kept.stop}." in warning.message
    cropped = from_attentions([one[..., kept, kept] for one in padded], names())
    assert "padding" not in {one.code for one in cropped.warnings}


@pytest.mark.parametrize("rule", ["all", "prefix", "window", "around"])
def test_hidden_keys_are_no_padding(rule: str) -> None:
    assert "padding" not in {one.code for one in from_attentions(weights(rule=rule), names()).warnings}


def test_a_single_token_is_no_padding() -> None:
    assert "padding" not in {one.code for one in from_attentions([np.ones((1, 1, 1))], ["one"]).warnings}


REFUSED: list[tuple[str, Any, Any, Any, str]] = [
    ("nothing", [], names(), None, "no layer"),
    ("no list", 3, names(), None, "list"),
    ("one layer", weights()[0][0], names(), None, "three axes"),
    ("a batch", [np.stack([one, one]) for one in weights()], names(), None, "one input"),
    ("missing", [weights()[0], None], names(), None, "eager"),
    ("words", ["attention"], names(), None, "numbers"),
    ("no head", [np.zeros((0, N, N))], names(), None, "empty"),
    ("complex", [weights()[0].astype(complex)], names(), None, "real"),
    ("heads differ", [weights()[0], weights()[1][:2]], names(), None, "Layer 1"),
    ("lengths differ", [weights()[0], weights(n=9)[1]], names(), None, "Layer 1"),
    ("NaN", [np.full((1, N, N), np.nan)], names(), None, "NaN"),
    ("scores", [one - 0.5 for one in weights()], names(), None, "softmax"),
    ("dropout", [one / 0.9 for one in weights()], names(), None, "evaluation"),
    ("padding", [np.where(np.arange(N)[:, None] < 8, one, 0) for one in weights()], names(), None, "adding"),
    ("too few tokens", weights(), names(5), None, "5 tokens"),
    ("a text", weights(), "a" * N, None, "list"),
    ("numbers as tokens", weights(), list(range(N)), None, "list"),
    ("no tokens", weights(), None, None, "list"),
    ("a number of tokens", weights(), N, None, "list"),
    ("values of one layer", weights(), names(), values()[:1], "1 of values"),
    ("values of other tokens", weights(), names(), values(n=9), "12 tokens"),
    ("values of three heads", weights(), names(), values(groups=3), "divides 4"),
    ("values of two widths", weights(), names(), [values()[0], values(width=6)[1]], "width"),
]


@variants(
    ("attentions", "tokens", "vectors", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_is_no_attention_is_refused(attentions: Any, tokens: Any, vectors: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        from_attentions(attentions, tokens, vectors)


@pytest.mark.parametrize("lens", ["effective", "norm", "value-zeroing", "alti"])
def test_lenses_that_need_more_are_refused(lens: str) -> None:
    with pytest.raises(Unsupported):
        from_attentions(weights(), names(), lenses=(lens,))


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(Unknown):
        from_attentions(weights(), names(), lenses=("nonsense",))
    with pytest.raises(HeadscopeError):
        from_attentions(weights(), names(), lenses=(), measures=())


def test_values_in_half_precision_decide_no_rank() -> None:
    with pytest.raises(Unsupported, match="Give weights and values that were computed in float32"):
        from_attentions(weights(), names(), [torch.as_tensor(one).bfloat16() for one in values()])


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["[CLS]", "play", "##ing", ",", "[UNK]", "[SEP]"], ["[CLS]", "playing", ",", "[UNK]", "[SEP]"]),
        (["The", "Ġcats", "it", ".", "ĠNo", "<|endoftext|>"], ["The", "catsit", ".", "No", "<|endoftext|>"]),
        (["<s>", "▁Hel", "lo", "▁", "!", "</s>"], ["<s>", "Hello", "▁", "!", "</s>"]),
        (["one", "two", "two"], ["one", "two", "two"]),
        (["", "x"], ["", "x"]),
    ],
)
def test_pieces_of_tokenizers_are_words(pieces: list[str], words: list[str]) -> None:
    """The marks of WordPiece, byte-level BPE and SentencePiece; without marks every piece is a word."""
    tokens = parse_pieces(pieces)
    assert word_groups(tokens)[1] == words
    for token, piece in zip(tokens, pieces, strict=True):
        assert (
            (token.kind == "special")
            == (token.word is None)
            == (piece in words and piece[:1] in "[<" and piece not in ("", "[UNK]"))
        )
    assert max(token.end for token in tokens) <= len(" ".join(words))


def test_numbers_of_layers_and_heads() -> None:
    """Some layers and heads of a model keep their numbers; lenses that join layers or heads need all of them."""
    A = weights()
    a = from_attentions(A, names(), layers=[3, 7], heads=[0, 2, 5, 9], measures=("entropy", "rank"))
    b = from_attentions(A, names(), measures=("entropy", "rank"))
    assert (a.layers, a.heads) == ([3, 7], [0, 2, 5, 9])
    assert a.id != b.id
    np.testing.assert_array_equal(a.maps["weights"], b.maps["weights"])
    np.testing.assert_array_equal(a.measures["rank"]["weights"], b.measures["rank"]["weights"])
    for wrong in ([3], [7, 3], [3, 3], [-1, 3], [0.5, 1]):
        with pytest.raises(InvalidRequest, match="layers"):
            from_attentions(A, names(), layers=wrong)
    from_attentions(A, names(), layers=[0, 1], lenses=("rollout",))
    for some in ({"layers": [3, 7]}, {"heads": [0, 2, 5, 9]}):
        with pytest.raises(Unsupported, match="all of them"):
            from_attentions(A, names(), lenses=("rollout",), **some)
