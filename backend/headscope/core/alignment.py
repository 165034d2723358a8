"""Which tokens of two inputs stand for the same: token by token where they are cut alike, else word by word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidRequest
from .tokens import Token
from .words import group, word_groups

Array = NDArray[Any]
# Words that stand where others stood are paired if there are this few of them: in a longer stretch the order says little.
REPLACED = 3
# Maps are compared if this share of the tokens of either input has a counterpart.
ENOUGH = 0.5
# No word is spelled like this.
SPECIAL = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Tokens of one input and their counterparts in the other, each a run of neighbours."""

    tokens: range
    others: range
    text: str
    other_text: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """The pairs in their order. `share`, 0..1, is that of the tokens that have a counterpart, in whichever input has fewer."""

    by: Literal["token", "word"]
    pairs: tuple[Pair, ...]
    share: float


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of one input; what is spelled alike has one key, and special tokens share theirs."""

    tokens: range
    text: str
    key: tuple[int, str]


def align(one: Sequence[Token], other: Sequence[Token]) -> Alignment:
    """Pair the tokens of two inputs, of one text or two, cut by one tokenizer or two.

    Tokens that are spelled alike from first to last are paired one by one. Else words are: those of the longest common subsequence, whatever their case;
    between them what is the same text cut differently, and up to REPLACED words that stand where as many others stand. Special tokens are alike.
    """
    if [(token.text, token.segment) for token in one] == [(token.text, token.segment) for token in other]:
        same = tuple(Pair(range(i, i + 1), range(i, i + 1), token.text, token.text) for i, token in enumerate(one))
        return Alignment("token", same, 1.0)
    sides = _words(one), _words(other)
    pairs = tuple(_paired(*sides))
    shares = [
        sum(len(getattr(pair, name)) for pair in pairs) / max(1, len(side))
        for name, side in (("tokens", one), ("others", other))
    ]
    return Alignment("word", pairs, min(shares))


def check_enough(*alignments: Alignment) -> None:
    """Raise InvalidRequest where too little of the two inputs is alike to lay their maps over each other."""
    if any(alignment.share < ENOUGH for alignment in alignments):
        raise InvalidRequest(
            "The two analyses have too few tokens in common, so their maps can't be laid over each other. Compare texts that share at least half of their words.",
            pointer="/other",
        )


def laid(maps: Array, queries: Sequence[range], keys: Sequence[range]) -> Array:
    """The part of maps [..., Q, K] that has a counterpart, [..., V, W]: means over query tokens, sums over key tokens of each run."""
    (rows, chosen_rows), (columns, chosen_columns) = (
        _partition(runs, count) for runs, count in zip((queries, keys), maps.shape[-2:], strict=True)
    )
    if len(rows) < maps.shape[-2] or len(columns) < maps.shape[-1]:
        maps = group(maps, rows, columns)
    if len(chosen_rows) == maps.shape[-2] and len(chosen_columns) == maps.shape[-1]:
        return maps
    return maps[..., chosen_rows, :][..., chosen_columns]


def _partition(runs: Sequence[range], count: int) -> tuple[list[int], list[int]]:
    """Sizes that hold all `count` tokens, those of no run alone, and the places of the runs among them."""
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


def _paired(one: list[_Word], other: list[_Word]) -> Iterator[Pair]:
    """Common words and what lies between them."""
    common = [*_common([word.key for word in one], [word.key for word in other]), (len(one), len(other))]
    i = j = 0
    for next_i, next_j in common:
        yield from _between(one[i:next_i], other[j:next_j])
        if next_i < len(one):
            yield _pair(one[next_i : next_i + 1], other[next_j : next_j + 1])
        i, j = next_i + 1, next_j + 1


def _between(one: list[_Word], other: list[_Word]) -> Iterator[Pair]:
    """The same text cut differently is one pair; few words that stand in the place of as many are a pair each."""
    segments = {segment for side in (one, other) for segment, _ in (word.key for word in side)}
    if not one or not other or len(segments) > 1 or any(word.key[1] == SPECIAL for word in one + other):
        return
    if _spelled(one) == _spelled(other):
        yield _pair(one, other)
    elif len(one) == len(other) <= REPLACED:
        yield from (_pair([word], [replaced]) for word, replaced in zip(one, other, strict=True))


def _spelled(words: list[_Word]) -> str:
    return "".join(word.key[1] for word in words).replace(" ", "")


def _pair(one: list[_Word], other: list[_Word]) -> Pair:
    (run, text), (other_run, other_text) = map(_joined, (one, other))
    return Pair(run, other_run, text, other_text)


def _joined(words: list[_Word]) -> tuple[range, str]:
    return range(words[0].tokens.start, words[-1].tokens.stop), "".join(word.text for word in words)


def _common(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """Places of the longest common subsequence. Its table is smaller than one head's map."""
    numbers: dict[tuple[int, str], int] = {}
    a, b = (np.array([numbers.setdefault(key, len(numbers)) for key in side], np.int32) for side in (one, other))
    # longest[i, j]: of the first i of one and the first j of the other.
    longest = np.zeros((len(a) + 1, len(b) + 1), np.uint16 if min(len(a), len(b)) < 2**16 else np.uint32)
    for i in range(len(a)):
        longest[i + 1, 1:] = np.maximum.accumulate(np.maximum(longest[i, 1:], longest[i, :-1] + (b == a[i])))
    found, i, j = [], len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            found.append((i, j))
        elif longest[i - 1, j] >= longest[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return found[::-1]
