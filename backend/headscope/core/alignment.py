"""Alignment of the tokens of two inputs: token by token if both are tokenized alike, otherwise word by word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import InvalidRequest
from .arrays import Array
from .tokens import Token
from .words import group, word_groups

# Replaced words are paired one by one up to this many; in longer runs the order means little.
REPLACED = 3
# Maps can be compared if at least this share of the tokens of each input has a counterpart.
ENOUGH = 0.5
# The key of special tokens, which no word has.
SPECIAL = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A run of tokens of one input and its counterpart in the other."""

    tokens: range
    others: range
    text: str
    other_text: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """Pairs in order. `share`, 0..1, is the share of tokens with a counterpart, the smaller one of the two inputs."""

    by: Literal["token", "word"]
    pairs: tuple[Pair, ...]
    share: float


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of one input. Words with the same spelling have the same key, and so have all special tokens."""

    tokens: range
    text: str
    key: tuple[int, str]


def align(one: Sequence[Token], other: Sequence[Token]) -> Alignment:
    """Pair the tokens of two inputs, of the same text or not, from the same tokenizer or not.

    If all tokens have the same text they are paired one by one. Otherwise words are paired: those of the longest common subsequence, ignoring case; between
    them, runs that are the same text split differently, and up to REPLACED words that replace as many others. All special tokens match.
    """
    if [(token.text, token.segment) for token in one] == [(token.text, token.segment) for token in other]:
        same = tuple(Pair(range(i, i + 1), range(i, i + 1), token.text, token.text) for i, token in enumerate(one))
        return Alignment("token", same, 1.0)
    sides = _words(one), _words(other)
    pairs = tuple(_pair_words(*sides))
    shares = [
        sum(len(getattr(pair, name)) for pair in pairs) / max(1, len(side))
        for name, side in (("tokens", one), ("others", other))
    ]
    return Alignment("word", pairs, min(shares))


def check_enough(*alignments: Alignment) -> None:
    """Raise InvalidRequest if the two inputs have too little in common to compare their maps."""
    if any(alignment.share < ENOUGH for alignment in alignments):
        raise InvalidRequest(
            "The two analyses have too few tokens in common to compare their maps. Compare texts that share at least half of their words.",
            pointer="/other",
        )


def select_aligned(maps: Array, queries: Sequence[range], keys: Sequence[range]) -> Array:
    """Return the aligned part of maps [..., Q, K], [..., V, W]: the mean over query tokens and the sum over key tokens of each run."""
    (rows, chosen_rows), (columns, chosen_columns) = (
        _partition(runs, count) for runs, count in zip((queries, keys), maps.shape[-2:], strict=True)
    )
    if len(rows) < maps.shape[-2] or len(columns) < maps.shape[-1]:
        maps = group(maps, rows, columns)
    if len(chosen_rows) == maps.shape[-2] and len(chosen_columns) == maps.shape[-1]:
        return maps
    return maps[..., chosen_rows, :][..., chosen_columns]


def _partition(runs: Sequence[range], count: int) -> tuple[list[int], list[int]]:
    """Return group sizes for all `count` tokens, with tokens outside the runs in groups of one, and which groups are the runs."""
    sizes: list[int] = []
    chosen, at = [], 0
    for run in runs:
        sizes += [1] * (run.start - at)
        chosen.append(len(sizes))
        sizes.append(len(run))
        at = run.stop
    return sizes + [1] * (count - at), chosen


def _words(tokens: Sequence[Token]) -> list[_Word]:
    sizes, texts = word_groups(tokens)
    ends = np.cumsum(sizes)
    return [
        _word(tokens, range(end - size, end), text) for size, end, text in zip(sizes, ends.tolist(), texts, strict=True)
    ]


def _word(tokens: Sequence[Token], run: range, text: str) -> _Word:
    first = tokens[run.start]
    spelled = SPECIAL if first.kind == "special" else text.strip().casefold() or " "
    return _Word(run, text.strip() or text, (first.segment, spelled))


def _pair_words(one: list[_Word], other: list[_Word]) -> Iterator[Pair]:
    """Yield pairs of common words, and of what is between them."""
    common = [*_common_subsequence([word.key for word in one], [word.key for word in other]), (len(one), len(other))]
    i = j = 0
    for next_i, next_j in common:
        yield from _pair_between(one[i:next_i], other[j:next_j])
        if next_i < len(one):
            yield _pair(one[next_i : next_i + 1], other[next_j : next_j + 1])
        i, j = next_i + 1, next_j + 1


def _pair_between(one: list[_Word], other: list[_Word]) -> Iterator[Pair]:
    """Yield one pair for the same text split differently, or a pair for each of a few replaced words."""
    segments = {segment for side in (one, other) for segment, _ in (word.key for word in side)}
    if not one or not other or len(segments) > 1 or any(word.key[1] == SPECIAL for word in one + other):
        return
    if _spelling(one) == _spelling(other):
        yield _pair(one, other)
    elif len(one) == len(other) <= REPLACED:
        yield from (_pair([word], [replaced]) for word, replaced in zip(one, other, strict=True))


def _spelling(words: list[_Word]) -> str:
    return "".join(word.key[1] for word in words).replace(" ", "")


def _pair(one: list[_Word], other: list[_Word]) -> Pair:
    (run, text), (other_run, other_text) = map(_join, (one, other))
    return Pair(run, other_run, text, other_text)


def _join(words: list[_Word]) -> tuple[range, str]:
    return range(words[0].tokens.start, words[-1].tokens.stop), "".join(word.text for word in words)


def _common_subsequence(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """Return the indices of the longest common subsequence. Its table has one bit for each pair."""
    numbers: dict[tuple[int, str], int] = {}
    a, b = (np.array([numbers.setdefault(key, len(numbers)) for key in side], np.int32) for side in (one, other))
    # longest[j]: length for the first i of one and the first j of the other; steps[i] has 1 where it grows with j.
    longest, steps = np.zeros(len(b) + 1, np.int32), np.zeros((len(a) + 1, -(-len(b) // 8)), np.uint8)
    for i in range(len(a)):
        longest[1:] = np.maximum.accumulate(np.maximum(longest[1:], longest[:-1] + (b == a[i])))
        steps[i + 1] = np.packbits(np.diff(longest))

    def length(i: int, j: int) -> int:
        return int(np.unpackbits(steps[i], count=j).sum())

    found, i, j = [], len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            found.append((i, j))
        elif length(i - 1, j) >= length(i, j - 1):
            i -= 1
        else:
            j -= 1
    return found[::-1]
