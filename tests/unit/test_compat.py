"""Calls of other tools, with their arguments: the examples of BertViz's documentation, and data in the form that each tool returns it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, T5Config, T5Model

import headscope
from headscope.analysis.result import Result
from headscope.compat import circuitsvis, inseq, transformer_lens, views
from headscope.compat.bertviz import head_view, model_view, neuron_view
from headscope.errors import InvalidRequest, Unsupported
from headscope.models.catalog import Catalog
from headscope.settings import Settings
from tests.support.models import byte_bpe
from tests.support.variants import variants

N = 9


@pytest.fixture(scope="module")
def minilm_folder() -> str:
    return str(Catalog(Settings()).locate("minilm").folder)


@pytest.fixture(scope="module")
def bert(minilm_folder: str) -> tuple[Any, Any]:
    model = AutoModel.from_pretrained(minilm_folder, output_attentions=True)
    return model, AutoTokenizer.from_pretrained(minilm_folder)


def analyses(view: Any) -> list[headscope.Analysis]:
    """What the viewers show."""
    sources = [viewer._source for viewer in view._viewers.values()]
    results = [Result.from_document(source.document, dict(source.arrays)) for source in sources]
    return [
        headscope.Analysis(**vars(result), maps=source.whole_maps, compute_id=lambda: "")
        for source, result in zip(sources, results, strict=True)
    ]


def fields(view: Any) -> list[dict[str, str]]:
    return [dict(viewer._view) for viewer in view._viewers.values()]


def equal(a: headscope.Analysis, attention: Any, heads: Any = slice(None)) -> bool:
    return bool(np.array_equal(a.maps["weights"], np.stack([one[0, heads].detach().numpy() for one in attention])))


def causal(heads: int = 4, n: int = N, seed: int = 0) -> torch.Tensor:
    scores = torch.randn(heads, n, n, generator=torch.Generator().manual_seed(seed))
    return scores.exp().tril() / scores.exp().tril().sum(-1, keepdim=True)


NAMES = [f"t{place}" for place in range(N)]


# BertViz


def test_self_attention_of_bertviz_documentation(bert: Any) -> None:
    """The views of a text: all heads, some layers, a choice of heads, dark and light."""
    model, tokenizer = bert
    inputs = tokenizer.encode("The cat sat on the mat", return_tensors="pt")
    attention = model(inputs).attentions
    tokens = tokenizer.convert_ids_to_tokens(inputs[0])
    for view, theme in (
        (model_view(attention, tokens), "dark"),
        (model_view(attention, tokens, display_mode="light"), "light"),
    ):
        [a] = analyses(view)
        assert [token.text for token in a.tokens] == tokens
        assert equal(a, attention)
        assert fields(view) == [{"head": "0.0", "theme": theme}]
    view = model_view(attention, tokens, include_layers=[5, 4], include_heads=[7, 3])
    [a] = analyses(view)
    assert (a.layers, a.heads) == ([4, 5], [3, 7])
    assert equal(a, attention[4:], [3, 7])
    view = head_view(attention, tokens, layer=2, heads=[3, 5])
    assert fields(view) == [{"head": "2.3", "heads": "2.3 2.5"}]
    assert equal(analyses(view)[0], attention)


def test_pairs_of_bertviz_documentation(bert: Any) -> None:
    """The second sentence, also as the third positional argument, is a segment; the neuron view computes the same from the texts."""
    model, tokenizer = bert
    inputs = tokenizer("the rabbit quickly hopped", "The turtle slowly crawled", return_tensors="pt")
    attention = model(**inputs).attentions
    sentence_b_start = inputs.token_type_ids[0].tolist().index(1)
    tokens = tokenizer.convert_ids_to_tokens(inputs.input_ids[0].tolist())
    [a] = analyses(head_view(attention, tokens, sentence_b_start))
    assert [token.segment for token in a.tokens] == inputs.token_type_ids[0].tolist()
    view = neuron_view.show(
        model,
        "bert",
        tokenizer,
        "the rabbit quickly hopped",
        "The turtle slowly crawled",
        layer=2,
        head=1,
        html_action="return",
    )
    assert fields(view) == [{"head": "2.1", "theme": "dark"}]
    [b] = analyses(view)
    np.testing.assert_allclose(b.maps["weights"], a.maps["weights"], atol=1e-5)
    with pytest.raises(InvalidRequest, match="no such head"):
        neuron_view.show(model, "bert", tokenizer, "the rabbit", layer=99)


@pytest.mark.parametrize("view", [head_view, model_view])
def test_encoder_decoder_of_bertviz_documentation(view: Any) -> None:
    """Encoder, decoder and cross-attention, with different numbers of layers, each in a viewer of its own."""
    torch.manual_seed(0)
    tokenizer = byte_bpe()
    model = T5Model(
        T5Config(
            vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=3, num_heads=4
        )
    ).eval()
    model.set_attn_implementation("eager")
    encoder_ids = tokenizer("She sees the small elephant.", return_tensors="pt").input_ids
    decoder_ids = tokenizer("Sie sieht ihn.", return_tensors="pt").input_ids
    outputs = model(input_ids=encoder_ids, decoder_input_ids=decoder_ids, output_attentions=True, use_cache=False)
    given = {
        "encoder_attention": outputs.encoder_attentions,
        "decoder_attention": outputs.decoder_attentions,
        "cross_attention": outputs.cross_attentions,
        "encoder_tokens": tokenizer.convert_ids_to_tokens(encoder_ids[0]),
        "decoder_tokens": tokenizer.convert_ids_to_tokens(decoder_ids[0]),
    }
    shown = view(**given)
    assert list(shown._viewers) == ["Encoder", "Decoder", "Cross"]
    for a, attention in zip(analyses(shown), list(given.values())[:3], strict=True):
        assert equal(a, attention)
    cross = analyses(shown)[2]
    assert (cross.kind, len(cross.tokens), len(cross.key_tokens)) == (
        "cross",
        decoder_ids.shape[1],
        encoder_ids.shape[1],
    )
    with pytest.raises(InvalidRequest, match="encoder_tokens"):
        view(cross_attention=outputs.cross_attentions, decoder_tokens=given["decoder_tokens"])


def test_pieces_are_shown_as_bertviz_shows_them() -> None:
    pieces = ["Ġcat", "▁mat", "low</w>", "##er"]
    weights = [causal(n=4)[None]]
    texts = lambda **more: [token.text for token in analyses(head_view(weights, pieces, **more))[0].tokens]  # noqa: E731
    assert texts() == ["cat", "mat", "low", "er"]
    assert texts(prettify_tokens=False) == pieces


def test_long_inputs_keep_fewer_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole layers from the opened one on, or the opened heads of it, and a note; what is kept is exact."""
    attention = [causal(seed=seed)[None] for seed in range(3)]
    monkeypatch.setattr(views, "MOST_ENTRIES", 9 * N * N)
    view = head_view(attention, NAMES, layer=2)
    [a] = analyses(view)
    assert (a.layers, a.heads) == ([0, 2], [0, 1, 2, 3])
    assert equal(a, [attention[0], attention[2]])
    assert "4 more heads" in view._notes[0]
    monkeypatch.setattr(views, "MOST_ENTRIES", 2 * N * N)
    view = head_view(attention, NAMES, layer=1, heads=[3])
    [a] = analyses(view)
    assert (a.layers, a.heads) == ([1], [0, 3])
    assert equal(a, [attention[1]], [0, 3])
    monkeypatch.setattr(views, "MOST_ENTRIES", 1)
    [a] = analyses(head_view(attention, NAMES, heads=[1, 2]))
    assert (a.layers, a.heads) == ([0], [1])
    view = circuitsvis.attention_patterns(NAMES, attention[0][0])
    assert analyses(view)[0].heads == [0]
    assert "first 1 of 4" in view._notes[0]


WEIGHTS = [causal()[None]]
REJECTED: list[tuple[dict[str, Any], str]] = [
    ({}, "Give attention"),
    ({"attention": WEIGHTS}, "tokens must be"),
    ({"attention": WEIGHTS, "tokens": NAMES[:4]}, "4 tokens"),
    ({"attention": WEIGHTS, "tokens": NAMES, "encoder_tokens": NAMES}, "not both"),
    ({"attention": (), "tokens": NAMES}, "no attention"),
    ({"attention": [None], "tokens": NAMES}, "eager"),
    ({"attention": [WEIGHTS[0][0]], "tokens": NAMES}, "one input"),
    ({"attention": [WEIGHTS[0][:, :2], WEIGHTS[0]], "tokens": NAMES}, "different numbers of heads"),
    ({"attention": [WEIGHTS[0], WEIGHTS[0][:, :2]], "tokens": NAMES}, "different numbers of heads"),
    ({"attention": WEIGHTS, "tokens": NAMES, "include_layers": [1]}, "include_layers"),
    ({"attention": WEIGHTS, "tokens": NAMES, "layer": 3}, "among those"),
    ({"attention": WEIGHTS, "tokens": NAMES, "heads": [4]}, "among those"),
    ({"attention": WEIGHTS, "tokens": NAMES, "sentence_b_start": 0}, "sentence_b_start"),
    ({"attention": WEIGHTS, "tokens": NAMES, "sentence_b_start": "1"}, "sentence_b_start"),
    ({"attention": WEIGHTS, "tokens": NAMES, "html_action": "print"}, '"view" or "return"'),
    ({"attention": 3, "tokens": NAMES}, "returned no attention"),
    ({"attention": [[[[[1.0], [1.0, 0.0]]]]], "tokens": NAMES}, "not an array of numbers"),
    ({"attention": WEIGHTS, "tokens": 3}, "tokens must be a list"),
]


@variants(("arguments", "said"), REJECTED)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        head_view(**arguments)


def test_nested_lists_and_layers_without_attention() -> None:
    """Layers that a view leaves out need no attention."""
    [a] = analyses(head_view([WEIGHTS[0].tolist(), None], NAMES, include_layers=[0]))
    assert equal(a, WEIGHTS[:1])


def test_modes_that_do_not_exist() -> None:
    with pytest.raises(InvalidRequest, match="display_mode"):
        model_view(WEIGHTS, NAMES, display_mode="sepia")


# CircuitsVis


@pytest.mark.parametrize(
    "form", [lambda one: one, lambda one: one.numpy(), lambda one: one.tolist(), lambda one: one[None]]
)
def test_heads_as_circuitsvis_takes_them(form: Any) -> None:
    view = circuitsvis.attention.attention_heads(form(causal()), NAMES, [f"L5H{head}" for head in range(4)])
    [a] = analyses(view)
    assert a.causal
    np.testing.assert_array_equal(a.maps["weights"][0], causal().numpy())
    assert "0.3: L5H3" in view._notes[0]
    assert str(view) == view.data == view._repr_html_()


def test_one_pattern_and_masks() -> None:
    everywhere = torch.full((2, N, N), 1 / N)
    [a] = analyses(circuitsvis.attention_pattern(NAMES, causal()[0]))
    assert a.maps["weights"].shape == (1, 1, N, N)
    assert analyses(circuitsvis.attention_heads(causal(), NAMES, mask_upper_tri=False))[0].keys.min() == N
    with pytest.raises(InvalidRequest, match="mask_upper_tri"):
        circuitsvis.attention_heads(everywhere, NAMES, mask_upper_tri=True)
    with pytest.raises(InvalidRequest, match="4 names"):
        circuitsvis.attention_heads(causal(), NAMES, ["one"])
    with pytest.raises(InvalidRequest, match="three axes"):
        circuitsvis.attention_patterns(NAMES, everywhere[0])
    with pytest.raises(Unsupported, match="show_axis_labels"):
        circuitsvis.attention_pattern(NAMES, causal()[0], show_axis_labels=False)
    with pytest.raises(InvalidRequest, match="not an array of numbers"):
        circuitsvis.attention_heads(None, NAMES)
    for tokens in (None, "abc"):
        with pytest.raises(InvalidRequest, match="tokens must be a list"):
            circuitsvis.attention_heads(causal(n=3), tokens)  # type: ignore[arg-type]
    for name in ("max_value", "min_value", "negative_color", "positive_color"):
        with pytest.raises(Unsupported, match=name):
            circuitsvis.attention_heads(causal(), NAMES, **{name: 1})


# Attention that other tools have captured


def test_cache_of_transformer_lens() -> None:
    """Layers keep their numbers if a filter has left some out, and values give effective attention."""
    cache = {f"blocks.{layer}.attn.hook_pattern": causal(seed=layer)[None] for layer in (10, 2)}
    cache |= {f"blocks.{layer}.attn.hook_v": torch.randn(1, N, 4, 3) for layer in (2, 10)}
    a = transformer_lens.from_cache(cache, NAMES)
    assert (a.layers, list(a.maps)) == ([2, 10], ["weights"])
    np.testing.assert_array_equal(a.maps["weights"][1], causal(seed=10).numpy())
    b = transformer_lens.from_cache(cache, NAMES, values=True)
    values = [cache[f"blocks.{layer}.attn.hook_v"][0].transpose(0, 1) for layer in (2, 10)]
    expected = headscope.from_attentions(a.maps["weights"], NAMES, values)
    np.testing.assert_array_equal(b.maps["effective"], expected.maps["effective"])
    with pytest.raises(InvalidRequest, match="hook_v"):
        transformer_lens.from_cache({"blocks.0.attn.hook_pattern": causal()}, NAMES, values=True)
    with pytest.raises(InvalidRequest, match="hook_pattern"):
        transformer_lens.from_cache({"blocks.0.hook_resid_pre": causal()}, NAMES)
    with pytest.raises(InvalidRequest, match="run_with_cache"):
        transformer_lens.from_cache(None, NAMES)  # type: ignore[arg-type]
    arrays = {name: one.numpy() for name, one in cache.items()}
    np.testing.assert_array_equal(
        transformer_lens.from_cache(arrays, NAMES, values=True).maps["effective"], b.maps["effective"]
    )


def _sequence(**attributions: Any) -> Any:
    """A sequence of inseq's output: a source of 3 tokens, a target of 5, of which the last 3 were attributed."""
    tokens = lambda *texts: [SimpleNamespace(token=text) for text in texts]  # noqa: E731
    fields = {"source_attributions": None, "target_attributions": None, **attributions}
    one = SimpleNamespace(source=tokens(*"abc"), target=tokens(*"vwxyz"), attr_pos_start=2, attr_pos_end=5, **fields)
    return SimpleNamespace(sequence_attributions=[one])


def test_output_of_inseq() -> None:
    """Columns of its tensors [K, Q, L, H] are steps of generation, NaN where a token does not exist yet; the query of a step is the token before."""
    whole = torch.stack([causal(n=5, seed=layer) for layer in range(2)])  # [L, H, Q, K]
    target = whole[:, :, 1:4].permute(3, 2, 0, 1).clone()
    target[whole[:, :, 1:4].permute(3, 2, 0, 1) == 0] = torch.nan
    a = inseq.from_output(_sequence(target_attributions=target))
    assert [token.text for token in a.tokens] == ["w", "x", "y"]
    assert [token.text for token in a.key_tokens] == ["v", "w", "x", "y"]
    np.testing.assert_array_equal(a.maps["weights"], whole[:, :, 1:4, :4].numpy())
    cross = torch.rand(3, 3, 2, 4).softmax(0)
    both = _sequence(source_attributions=cross, target_attributions=target)
    b = inseq.from_output(both)
    assert [token.text for token in b.key_tokens] == ["a", "b", "c"]
    np.testing.assert_array_equal(b.maps["weights"], cross.permute(2, 3, 1, 0).numpy())
    assert inseq.from_output(both, side="target").id == a.id
    with pytest.raises(InvalidRequest, match="by layer and head"):
        inseq.from_output(_sequence(target_attributions=target[..., 0, 0]))
    with pytest.raises(InvalidRequest, match="index"):
        inseq.from_output(both, 1)
    with pytest.raises(InvalidRequest, match="attribute"):
        inseq.from_output(None)


def test_views_outside_of_notebooks_are_pages(tmp_path: Path) -> None:
    """The view is returned, and saved as one file."""
    view = head_view(WEIGHTS, NAMES)
    view.save(tmp_path / "a.html")
    assert view.data in (tmp_path / "a.html").read_text("ascii")
