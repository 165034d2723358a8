"""Thumbnails without special tokens and sinks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import headscope
from headscope.api.documents.thumbnails import draw_without
from headscope.measures.thumbnail import pool
from tests.support.maps import slow_sinks


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("causal", "signed", "queries", "keys"), [(True, False, 50, 50), (False, True, 41, 77), (False, False, 7, 9)]
)
def test_thumbnails_of_random_maps(dtype: Any, causal: bool, signed: bool, queries: int, keys: int) -> None:
    """Random maps of any type, with undefined rows and a sink of one head, agree with the definitions written out; the numbers are those of float64."""
    generator = np.random.default_rng(queries)
    maps = generator.gamma(0.3, size=(2, 3, queries, keys))
    if signed:
        maps *= generator.choice([-1, 1], maps.shape)
    maps[0, 1, :, 2] += 9 * keys  # a sink
    if causal:
        maps *= np.tri(queries)
    maps /= np.abs(maps).sum(-1, keepdims=True)
    maps[1, 2, 5] = np.nan
    maps = maps.astype(dtype)
    lens, tile = "effective" if signed else "weights", 8
    tokens = [{"kind": "special" if place in (0, keys - 1) else "word"} for place in range(keys)]
    source = SimpleNamespace(
        document={"tokens": tokens, "key_tokens": None, "causal": causal, "shapes": {lens: maps.shape}},
        arrays={f"tile/{lens}/scale": np.ones((2, 3), np.float32)},
        maps=lambda _, layers, heads: maps[layers, heads],
    )
    drawn = draw_without(source, lens, "both", tile)
    assert [drawn[name].dtype for name in ("tiles", "scale", "offset")] == [np.uint8, np.float32, np.float32]
    for layer, head in np.ndindex(2, 3):
        one = maps[layer, head].astype(np.float64)
        left = {0, keys - 1, *slow_sinks(one, causal)}
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
        for layer, head in np.ndindex(6, 12):
            left = sorted({*special, *slow_sinks(maps[layer, head].astype(np.float64), causal=False)})
            assert np.flatnonzero(drawn["without"][layer, head]).tolist() == left
            rest = np.delete(np.abs(maps[layer, head]), left, axis=1).max()
            zero, largest = (128, 127) if lens == "effective" else (0, 255)
            bytes_ = np.abs(drawn["tiles"][layer, head].astype(int) - zero)
            assert bytes_.max() == largest
            assert np.isclose(largest * drawn["scale"][layer, head], rest, rtol=1e-5)
