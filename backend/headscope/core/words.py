"""Maps of words from maps of tokens: the tokens of a word are aggregated."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import index

import numpy as np

from ..errors import InvalidRequest
from .arrays import Array
from .tokens import Token


def group(maps: Array, queries: Sequence[int], keys: Sequence[int], order: Sequence[int] | None = None) -> Array:
    """Sum over the key tokens and average over the query tokens of each word. [..., Q, K] -> [..., V, W] in the maps' type.

    `queries` and `keys` are the numbers of tokens of each word, in order, or in an `order` of the tokens along both axes.
    Row sums are kept: rows that sum to 1 still do. A word with a query without a
    reading (NaN) has no reading. Raises InvalidRequest unless the numbers add up to Q and K.
    """
    sizes = np.asarray(queries, np.int64), np.asarray(keys, np.int64)
    if any((side < 1).any() or side.sum() != count for side, count in zip(sizes, maps.shape[-2:], strict=True)):
        raise InvalidRequest(
            "The words do not fit the tokens of this map. Every word needs a token, and every token a word."
        )
    starts = [np.concatenate([[0], side.cumsum()[:-1]]) for side in sizes]
    result = np.empty((*maps.shape[:-2], len(sizes[0]), len(sizes[1])), maps.dtype)
    for place in np.ndindex(maps.shape[:-2]):
        values = maps[place] if order is None else maps[place][order][:, order]
        summed = np.add.reduceat(values, starts[1], axis=1, dtype=np.float64)
        result[place] = np.add.reduceat(summed, starts[0], axis=0) / sizes[0][:, None]
    return result


def word_groups(tokens: Sequence[Token]) -> tuple[list[int], list[str]]:
    """Return the number of tokens of each word, in order, and its text. Tokens without a word, such as special tokens, are groups of their own."""
    runs = [list(run) for _, run in groupby(enumerate(tokens), key=_owner)]
    return [len(run) for run in runs], [_label([token for _, token in run]) for run in runs]


def arrange(tokens: Sequence[Token], groups: Sequence[Sequence[int]]) -> tuple[list[int], list[int], list[str]]:
    """Return the tokens in the order of groups of token indices, followed by ungrouped tokens in groups of one; the sizes of the groups; and their texts.

    Raises InvalidRequest for a token that does not exist or is in two groups, and for an empty group.
    """
    try:
        groups = [[index(number) for number in one] for one in groups]
    except TypeError:  # no list of lists, or not of integers
        raise InvalidRequest('Groups are "word", or lists of token numbers, such as [[1, 2], [4]].') from None
    named = [number for one in groups for number in one]
    if len(set(named)) < len(named) or not set(named) <= set(range(len(tokens))) or not all(groups):
        raise InvalidRequest(
            f"Every group needs one or more of the tokens 0 to {len(tokens) - 1}, and no token can be in two groups."
        )
    every = [*groups, *([number] for number in range(len(tokens)) if number not in named)]
    order = [number for one in every for number in one]
    names = [" ".join(word_groups([tokens[number] for number in sorted(one)])[1]) for one in every]
    return order, [len(one) for one in every], names


def _owner(placed: tuple[int, Token]) -> tuple[str, int]:
    place, token = placed
    return ("alone", place) if token.word is None or token.kind == "special" else ("word", token.word)


def _label(tokens: Sequence[Token]) -> str:
    """Return the joined texts of the tokens. Tokens of the same characters are used once, and gaps become one space."""
    text, end = tokens[0].text, tokens[0].end
    for token in tokens[1:]:
        if token.end > end:
            text += " " * (token.start > end) + token.text
            end = token.end
    return text
