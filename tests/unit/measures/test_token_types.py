"""Attention by token type against a loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.measures.token_types import COLUMNS, KINDS

from .heads import FEW, agree, average, cases, head_layer, measure, rows, sentence

JOIN = {"max": max, "min": min, "sum": sum, "mean": average}


def slow(
    layer: Any, map_: np.ndarray, mask: np.ndarray, query: str, aggregate: str, pieces: str
) -> list[dict[str, float]]:
    """Query by query, type by type, word by word, in float64."""
    tokens, n = layer.axes.keys, len(layer.axes.keys)
    queries = {"first": [0], "last": [n - 1], "all": list(range(n))}[query]
    words: dict[int, list[int]] = {}
    for place, token in enumerate(tokens):
        if token.word is not None:
            words.setdefault(token.word, []).append(place)
    found = []
    for head in map_.astype(np.float64):
        columns = {}
        for name in COLUMNS:
            values = []
            for i in queries:
                if np.isnan(head[i]).any():
                    continue
                if name == "first":
                    numbers = [head[i][0]] if mask[i, 0] and tokens[0].kind == "special" else []
                elif name == "separator":
                    closing = [
                        j for j in range(1, n) if tokens[j].kind == "special"
                    ]  # sentence() ends every text with one
                    numbers = [head[i][j] for j in closing if mask[i, j]]
                elif name in KINDS:
                    numbers = [head[i][j] for j in range(n) if mask[i, j] and tokens[j].kind == name]
                else:
                    numbers = []
                    for places in words.values():
                        seen = [head[i][j] for j in places if mask[i, j]]
                        if tokens[places[0]].pos == name and mask[i, places[0]]:
                            numbers.append(seen[0] if pieces == "first" else JOIN[pieces](seen))
                if numbers:
                    values.append(JOIN[aggregate](numbers))
            columns[name] = average(values)
        found.append(columns)
    return found


@FEW
@given(
    cases(),
    st.sampled_from(["first", "last", "all"]),
    st.sampled_from(list(JOIN)),
    st.sampled_from(["first", "sum", "mean", "max"]),
)
def test_against_a_loop(case: Any, query: str, aggregate: str, pieces: str) -> None:
    """Every combination of parameters, any mask, signed maps and missing rows; 2e-6."""
    layer, lens, map_, mask = case
    found = measure("token_types", layer, lens, map_, query=query, aggregate=aggregate, pieces=pieces)
    agree(found, slow(layer, map_, mask, query, aggregate, pieces), 2e-6)


@pytest.mark.parametrize("query", ["first", "last", "all"])
def test_kinds_cover_every_token_once(query: str) -> None:
    """Summed over the five kinds a row gives what it sums to."""
    tokens = sentence("[CLS] a cat ##s , dog . x y [SEP]")
    tokens = (*tokens[:7], *(replace(token, kind="image", word=None) for token in tokens[7:9]), tokens[9])
    weights = rows(0, 4, np.ones((10, 10), bool))
    found = measure("token_types", head_layer(weights, tokens), query=query, aggregate="sum")
    place = {"first": slice(0, 1), "last": slice(-1, None), "all": slice(None)}[query]
    np.testing.assert_allclose(found["image"], weights[:, place, 7:9].sum(-1).mean(-1), atol=1e-6)
    np.testing.assert_allclose(sum(found[kind] for kind in KINDS), 1, atol=1e-6)


def test_a_word_of_pieces_counts_once() -> None:
    """By its first token as in the paper, by the sum, the mean or the largest of all."""
    tokens = sentence("[CLS] cat ##s", pos={"cat": "NOUN", "##s": "NOUN"})
    map_ = np.array([[[0.5, 0.1, 0.4]] * 3])
    for pieces, expected in (("first", 0.1), ("sum", 0.5), ("mean", 0.25), ("max", 0.4)):
        assert measure("token_types", head_layer(map_, tokens), pieces=pieces)["NOUN"][0] == pytest.approx(expected)


def test_the_largest_of_many_is_larger() -> None:
    """The bias the page warns of: on random rows `max` grows with the number of tokens of a type, `mean` does not."""
    tokens = sentence(["[CLS]", *["a"] * 29, "[SEP]"])
    layer = head_layer(rows(0, 200, np.ones((31, 31), bool)), tokens)
    largest, typical = measure("token_types", layer), measure("token_types", layer, aggregate="mean")
    assert largest["word"].mean() > 3 * largest["special"].mean()
    assert typical["word"].mean() == pytest.approx(typical["special"].mean(), rel=0.25)


def test_types_that_do_not_occur() -> None:
    """NaN, not 0; tags that are no universal part of speech have no column."""
    tokens = sentence("a cat", pos={"cat": "NN", "a": "DET"})
    found = measure("token_types", head_layer(rows(0, 1, np.ones((2, 2), bool)), tokens), query="all")
    assert {name for name, column in found.items() if not np.isnan(column).any()} == {"word", "DET"}
