"""Tokens of two inputs that stand for the same, and maps laid over each other by them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.core.alignment import Alignment, _common_subsequence, align, check_enough, select_aligned
from headscope.core.tokens import Token
from headscope.errors import InvalidRequest


def cut(text: str, *, pieces: int = 99, begin: str = "[CLS]", segment: int = 0, lower: bool = False) -> list[Token]:
    """Words and punctuation marks in pieces of so many characters, behind a special token."""
    tokens = [Token(begin, 0, 0, 0, None, segment, "special")] if begin else []
    for word, match in enumerate(re.finditer(r"\w+|[^\w\s]", text)):
        for start in range(match.start(), match.end(), pieces):
            end = min(start + pieces, match.end())
            piece = text[start:end].lower() if lower else text[start:end]
            tokens.append(Token(piece, 1, start, end, word, segment, "word"))
    return tokens


def texts(alignment: Alignment) -> list[tuple[str, str]]:
    return [(pair.text, pair.other_text) for pair in alignment.pairs]


def test_equal_tokens_are_paired_one_by_one() -> None:
    tokens = cut("It was a bank.", pieces=2)
    found = align(tokens, tokens)
    assert (found.by, found.share) == ("token", 1.0)
    assert [(*pair.tokens, *pair.others) for pair in found.pairs] == [(i, i) for i in range(len(tokens))]


def test_two_tokenizers() -> None:
    """Words in pieces of other lengths, in lower case, behind another special token, are the same words."""
    one, other = cut("The Trophy did not fit."), cut("The Trophy did not fit.", pieces=3, begin="<s>", lower=True)
    found = align(one, other)
    assert (found.by, found.share) == ("word", 1.0)
    assert texts(found)[:3] == [("[CLS]", "<s>"), ("The", "the"), ("Trophy", "trophy")]
    assert list(found.pairs[2].others) == [2, 3]
    without = align(one, cut("The Trophy did not fit.", pieces=3, begin=""))
    assert len(without.pairs) == len(one) - 1
    assert without.share == pytest.approx(6 / 7)


def test_words_split_differently_are_one_pair() -> None:
    """Where one tokenizer sees several words and the other sees one."""
    one = cut("I don't know", begin="")
    other = [
        Token(text, 1, start, start + len(text), i, 0, "word")
        for i, (text, start) in enumerate([("I", 0), ("don't", 2), ("know", 8)])
    ]
    found = align(one, other)
    assert texts(found) == [("I", "I"), ("don't", "don't"), ("know", "know")]
    assert list(found.pairs[1].tokens) == [1, 2, 3]
    assert found.share == 1


def test_two_texts() -> None:
    """Common words, words put in the place of others, and what only one of them says."""
    found = align(cut("The cat sat on the mat."), cut("Yesterday the dog sat on a mat."))
    assert texts(found) == [
        ("[CLS]", "[CLS]"),
        ("The", "the"),
        ("cat", "dog"),
        ("sat", "sat"),
        ("on", "on"),
        ("the", "a"),
        ("mat", "mat"),
        (".", "."),
    ]
    assert list(found.pairs[1].others) == [2]
    check_enough(found)


def test_a_word_is_no_special_token() -> None:
    assert align(cut("one two", begin=""), cut("one", begin="")).pairs[0].text == "one"
    assert texts(align(cut("", begin="[CLS]"), cut("word", begin=""))) == []


def test_too_little_in_common_subsequence() -> None:
    """Half of the tokens of either must have a counterpart."""
    with pytest.raises(InvalidRequest, match="tokens"):
        check_enough(align(cut("The cat sat on the mat."), cut("Few know where a river begins or ends.")))
    with pytest.raises(InvalidRequest, match="half"):
        check_enough(align(cut("The cat."), cut("The cat " + "and so on " * 9)))


def test_segments_are_apart() -> None:
    """A word of the first text is no word of the second."""
    first, second = (cut("one two three four", begin="", segment=segment) for segment in (0, 1))
    assert align(first, second).pairs == ()


@settings(max_examples=60, deadline=None)
@given(st.text("abc", max_size=7), st.text("abc", max_size=7))
def test_longest_common_subsequence_by_trying_all(one: str, other: str) -> None:
    found = _common_subsequence([(0, c) for c in one], [(0, c) for c in other])
    assert all(one[i] == other[j] for i, j in found)
    assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(found))
    subsequences = ("".join(part) for size in range(len(one), -1, -1) for part in itertools.combinations(one, size))
    longest = next(part for part in subsequences if _within(part, other))
    assert len(found) == len(longest)


def _within(part: str, text: str) -> bool:
    rest = iter(text)
    return all(c in rest for c in part)


def slow(maps: np.ndarray, queries: Sequence[range], keys: Sequence[range]) -> np.ndarray:
    return np.array(
        [[np.mean([sum(row[k] for k in columns) for row in maps[list(rows)]]) for columns in keys] for rows in queries]
    )


@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        ([range(i, i + 1) for i in range(6)], [range(i, i + 1) for i in range(5)]),
        ([range(2), range(2, 3), range(4, 6)], [range(1, 4)]),
        ([range(3, 4)], [range(1), range(4, 5)]),
    ],
)
def test_maps_against_loops(queries: list[range], keys: list[range]) -> None:
    """Means over the query tokens of a run, sums over its key tokens; what has no counterpart is left out."""
    maps = np.random.default_rng(0).random((2, 6, 5))
    found = select_aligned(maps, queries, keys)
    np.testing.assert_allclose(found, [slow(one, queries, keys) for one in maps], atol=1e-12)
