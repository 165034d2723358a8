"""Maps of words against plain loops; words of tokens against texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import headscope
from headscope import Model
from headscope.core.tokens import Token
from headscope.core.words import group, word_groups
from headscope.errors import InvalidRequest


def slow(grid: NDArray[Any], queries: list[int], keys: list[int]) -> list[list[float]]:
    """One map, entry by entry."""
    rows, top = [], 0
    for height in queries:
        row, left = [], 0
        for width in keys:
            entries = [float(grid[i, j]) for i in range(top, top + height) for j in range(left, left + width)]
            row.append(sum(entries) / height)
            left += width
        rows.append(row)
        top += height
    return rows


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
)
def test_groups_against_loops(seed: int, queries: list[int], keys: list[int]) -> None:
    """Within 1e-6 in float32, for signed maps too; sums of rows are kept."""
    maps = np.random.default_rng(seed).normal(size=(2, 3, sum(queries), sum(keys))).astype(np.float32)
    found = group(maps, queries, keys)
    assert found.dtype == np.float32
    expected = [[slow(grid, queries, keys) for grid in layer] for layer in maps]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    starts = np.concatenate([[0], np.cumsum(queries)[:-1]])
    sums = np.add.reduceat(maps.sum(-1, dtype=np.float64), starts, axis=-1) / queries
    np.testing.assert_allclose(found.sum(-1), sums, atol=1e-5)


def test_words_of_one_token_change_nothing() -> None:
    maps = np.random.default_rng(0).dirichlet(np.ones(5), (2, 5)).astype(np.float32)
    np.testing.assert_array_equal(group(maps, [1] * 5, [1] * 5), maps)


def test_distributions_stay_distributions_and_undefined_rows_stay_undefined() -> None:
    maps = np.random.default_rng(0).dirichlet(np.ones(6), (2, 6))
    np.testing.assert_allclose(group(maps, [1, 3, 2], [4, 2]).sum(-1), 1, rtol=1e-12)
    maps[0, 2] = np.nan
    found = group(maps, [1, 3, 2], [4, 2])
    assert np.isnan(found[0, 1]).all()
    assert np.isfinite(np.delete(found[0], 1, axis=0)).all()


@pytest.mark.parametrize(("queries", "keys"), [([2, 2], [5]), ([2, 3], [2, 4]), ([5, 0], [5]), ([], [5])])
def test_words_that_do_not_fit_are_refused(queries: list[int], keys: list[int]) -> None:
    with pytest.raises(InvalidRequest, match="word"):
        group(np.zeros((5, 5)), queries, keys)


def token(
    text: str, start: int, word: int | None, segment: int = 0, kind: Any = "word", end: int | None = None
) -> Token:
    return Token(text, 0, start, start + len(text) if end is None else end, word, segment, kind)


def test_pieces_are_joined_and_special_tokens_stand_alone() -> None:
    """Also the same word twice in a row, characters of several tokens, gaps inside a word, and tokens that belong to no word."""
    tokens = [
        token("[CLS]", 0, None, kind="special", end=0),
        token("play", 0, 0, kind="subword"),
        token("ing", 4, 0, kind="subword"),
        token("ha", 8, 1),
        token("ha", 11, 2),
        token("🙂", 14, 3, kind="subword"),
        token("🙂", 14, 3, kind="subword"),
        token("New", 16, 4),
        token("York", 20, 4),
        token(" ", 24, None),
        token(" ", 25, None),
        token("[SEP]", 0, None, kind="special", end=0),
        token("[SEP]", 0, None, 1, kind="special", end=0),
        token("[UNK]", 0, 5, 1, end=1),
    ]
    sizes, labels = word_groups(tokens)
    assert sizes == [1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 1]
    assert labels == ["[CLS]", "playing", "ha", "ha", "🙂", "New York", " ", " ", "[SEP]", "[SEP]", "[UNK]"]


def test_words_of_an_analysis(minilm: Model) -> None:
    """Pieces of one word become one row and one column, and every row still sums to 1."""
    a = headscope.analyze(minilm, "Headscope untangles hyperparameters.", "Doesn't it?", lenses=("weights",))
    sizes, labels = word_groups(a.tokens)
    assert labels == [
        "[CLS]",
        "Headscope",
        "untangles",
        "hyperparameters",
        ".",
        "[SEP]",
        "Doesn",
        "'",
        "t",
        "it",
        "?",
        "[SEP]",
    ]
    assert sum(sizes) == len(a.tokens) > len(sizes)
    maps = group(a.maps["weights"], sizes, sizes)
    assert maps.shape == (6, 12, 12, 12)
    np.testing.assert_allclose(maps.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(maps[3, 2], slow(a.maps["weights"][3, 2], sizes, sizes), atol=1e-6)


def test_no_tokens_no_words() -> None:
    assert word_groups([]) == ([], [])


def test_groups_of_ones_own_on_an_analysis(minilm: Model) -> None:
    """Any tokens together, in any order; the rest stand alone behind; sums of rows are kept."""
    a = headscope.analyze(minilm, "Tokenization matters.")
    whole, found = a.maps["weights"].astype(np.float64), a.by([[0, 5], [3, 1, 2]])
    assert found.queries == found.keys
    assert found.queries[0] == "[CLS] [SEP]"
    assert found.maps["weights"].shape[-2:] == (len(found.queries), len(found.keys))
    np.testing.assert_allclose(found.maps["weights"].sum(-1), 1, atol=1e-5)
    expected = whole[..., [0, 5], :][..., [3, 1, 2]].sum(-1).mean(-1)
    np.testing.assert_allclose(found.maps["weights"][..., 0, 1], expected, atol=1e-6)
    for wrong in ([[0], [0]], [[99]], [[]]):
        with pytest.raises(InvalidRequest, match=r"[Gg]roup"):
            a.by(wrong)
