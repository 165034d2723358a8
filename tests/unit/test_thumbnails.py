"""Thumbnails without special tokens and sinks, and pooled maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import headscope
from headscope.api.documents.analyses import to_document
from headscope.api.documents.arrays import pool_cells, sum_rows
from headscope.api.documents.thumbnails import draw_without
from headscope.measures.received import Window, window_of
from headscope.measures.thumbnail import pool
from headscope.store.export import Flat
from tests.support.extent import extent
from tests.support.maps import slow_sinks
from tests.support.variants import variants


@variants("dtype", [np.float16, np.float32, np.float64], crossed=False)
@variants(
    ("window", "signed", "queries", "keys"),
    [
        ((49, 0), False, 50, 50),
        ((7, 0), False, 50, 50),
        ((6, 6), True, 40, 40),
        (None, True, 41, 77),
        (None, False, 7, 9),
    ],
)
def test_thumbnails_of_random_maps(dtype: Any, window: Window, signed: bool, queries: int, keys: int) -> None:
    """Random maps of any type, with undefined rows and a sink of one head, agree with the definitions written out; the numbers are those of float64."""
    generator = np.random.default_rng(queries)
    maps = generator.gamma(0.3, size=(2, 3, queries, keys))
    if signed:
        maps *= generator.choice([-1, 1], maps.shape)
    maps[0, 1, :, 2] += 9 * keys  # a sink
    allowed = np.ones((queries, keys), bool)
    if window:
        allowed = np.tri(queries, k=window[1], dtype=bool) & ~np.tri(queries, k=-window[0] - 1, dtype=bool)
        maps *= allowed
    maps /= np.abs(maps).sum(-1, keepdims=True)
    maps[1, 2, 5] = np.nan
    maps = maps.astype(dtype)
    lens, tile = "effective" if signed else "weights", 8
    tokens = [{"kind": "special" if place in (0, keys - 1) else "word"} for place in range(keys)]
    source = Flat(
        {"tokens": tokens, "key_tokens": None, "shapes": {lens: maps.shape}},
        {f"tile/{lens}/scale": np.ones((2, 3), np.float32), "keys": np.tile(allowed.sum(1), (2, 1))},
        {lens: maps},
    )
    drawn = draw_without(source, lens, "both", tile)
    assert [drawn[name].dtype for name in ("tiles", "scale", "offset")] == [np.uint8, np.float32, np.float32]
    for layer, head in np.ndindex(2, 3):
        one = maps[layer, head].astype(np.float64)
        left = {0, keys - 1, *slow_sinks(one, False, allowed)}
        assert (2 in left) == ((layer, head) == (0, 1))
        assert set(np.flatnonzero(drawn["without"][layer, head])) == left
        rest = np.nan_to_num(one) * [key not in left for key in range(keys)]
        pooled = pool(torch.from_numpy(rest)[None], tile, signed)[0].numpy()
        shown = drawn["offset"][layer, head] + drawn["scale"][layer, head] * drawn["tiles"][layer, head].astype(
            np.float64
        )
        assert np.allclose(shown, pooled, atol=0.51 * drawn["scale"][layer, head] + 1e-6)


def test_thumbnails_of_minilm() -> None:
    """Without [CLS] and [SEP] no thumbnail has more than the largest of the other entries; a head with a sink loses that, too."""
    text = "The bank by the river was closed, so the boats lay on the bank. " * 3
    analysis = headscope.analyze(headscope.load("minilm"), text, lenses=("weights", "effective"), measures=())
    special = [place for place, token in enumerate(analysis.tokens) if token.kind == "special"]
    for lens, maps in analysis.maps.items():
        drawn = draw_without(analysis.source, lens, "both")
        assert drawn["tiles"].shape == (6, 12, 32, 32)
        for layer, head in [*np.ndindex(6, 12)][:: extent(1, 5)]:
            left = sorted({*special, *slow_sinks(maps[layer, head].astype(np.float64), causal=False)})
            assert np.flatnonzero(drawn["without"][layer, head]).tolist() == left
            rest = np.delete(np.abs(maps[layer, head]), left, axis=1).max()
            zero, largest = (128, 127) if lens == "effective" else (0, 255)
            bytes_ = np.abs(drawn["tiles"][layer, head].astype(int) - zero)
            assert bytes_.max() == largest
            assert np.isclose(largest * drawn["scale"][layer, head], rest, rtol=1e-5)


@pytest.mark.parametrize("name", ["mistral", "gemma3", "modernbert", "gpt2", "bert"])
def test_windows_are_those_of_the_model(name: str) -> None:
    """Sliding windows, alternating ones and those to both sides: the queries that see a key are those of the model's mask, in every layer."""
    shape = {"vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
    sliding = {**shape, "num_key_value_heads": 2, "intermediate_size": 64, "sliding_window": 6}
    config: Any = {
        "mistral": lambda: transformers.MistralConfig(**sliding),
        "gemma3": lambda: transformers.Gemma3TextConfig(
            **sliding, head_dim=8, layer_types=["sliding_attention", "full_attention"]
        ),
        "modernbert": lambda: transformers.ModernBertConfig(
            **shape, intermediate_size=64, local_attention=8, global_attn_every_n_layers=2,
            cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2,
        ),
        "gpt2": lambda: transformers.GPT2Config(vocab_size=200, n_embd=32, n_layer=2, n_head=4),
        "bert": lambda: transformers.BertConfig(**shape, intermediate_size=64),
    }[name]()  # fmt: skip
    torch.manual_seed(0)
    model = headscope.load(transformers.AutoModel.from_config(config))
    analysis = headscope.analyze(model, token_ids=list(range(5, 35)), lenses=("weights",), measures=())
    drawn = draw_without(analysis.source, "weights", "sinks")
    windows = to_document("0", None, analysis.source).windows
    for layer, maps in enumerate(analysis.maps["weights"]):
        allowed = (maps > 0).any(0)
        window = windows[layer]
        if window is None:
            assert allowed.all()
        else:
            q, k = np.indices(allowed.shape)
            np.testing.assert_array_equal((q - k <= window[0]) & (k - q <= window[1]), allowed)
        for head, one in enumerate(maps.astype(np.float64)):
            assert np.flatnonzero(drawn["without"][layer, head]).tolist() == slow_sinks(one, False, allowed)
    assert windows == {
        "mistral": [(5, 0), (5, 0)], "gemma3": [(5, 0), (29, 0)], "modernbert": [None, (4, 4)],
        "gpt2": [(29, 0), (29, 0)], "bert": [None, None],
    }[name]  # fmt: skip


def test_masks_that_are_no_windows() -> None:
    """Chunks count as causal; a prefix that all queries see, and two texts beside each other, as no window."""
    chunks = np.array([1, 2, 3, 1, 2, 3, 1, 2])
    assert window_of(chunks, 8) == (7, 0)
    assert window_of(np.array([3, 3, 3, 4, 5, 6]), 6) is None
    assert window_of(np.array([2, 2, 2]), 5) is None


def test_pooled_cells_of_undefined_rows() -> None:
    """Undefined entries do not count, and a cell without any other is undefined; the largest magnitude may be negative."""
    rows = np.array([[[np.nan, np.nan, -3.0], [np.nan, np.nan, 2.0], [1.0, -1.0, np.nan]]], np.float32)
    expected = np.array([[[np.nan, -3.0], [1.0, np.nan]]], np.float32)
    assert np.array_equal(pool_cells(rows, 2, 2, signed=True), expected, equal_nan=True)


def test_sums_of_undefined_rows() -> None:
    """They are NaN, and do not count for the keys."""
    bands = [np.array([[1, -2], [np.nan, np.nan]]), np.array([[0.5, 0]])]
    sums = sum_rows(bands)
    assert np.array_equal(sums["queries"], np.float32([3, np.nan, 0.5]), equal_nan=True)
    assert np.array_equal(sums["keys"], np.float32([1.5, 2]))
