"""Query parameters that merge tokens into words or into groups named by the client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Query

from ...core.arrays import Array
from ...core.tokens import TOKENS
from ...core.words import group, word_groups
from ...errors import InvalidRequest

By = Annotated[
    Literal["token", "word"],
    Query(description="`word` merges the tokens of a word: sums over keys, means over queries."),
]
Groups = Annotated[
    str | None,
    Query(
        max_length=20_000,
        description="Query tokens to merge, such as `0,1|2|3-5`; other tokens stay separate. Applies to keys too unless `key_groups` is given.",
    ),
]
KeyGroups = Annotated[str | None, Query(max_length=20_000, description="Key tokens to merge.")]


@dataclass(frozen=True)
class Grouping:
    """Number of tokens in each row (`queries`) and column (`keys`) of a merged map; None if tokens stay separate."""

    queries: list[int] | None = None
    keys: list[int] | None = None

    def apply(self, maps: Array) -> Array:
        """Merge maps: [..., Q, K] -> [..., V, W]."""
        if self.queries is None or self.keys is None:
            return maps
        return group(maps, self.queries, self.keys)

    def cut(self, queries: slice, keys: slice) -> tuple[Grouping, slice, slice]:
        """Return the grouping of a window of rows and columns, and the tokens along both axes that it merges."""
        if self.queries is None or self.keys is None:
            return self, queries, keys
        return (
            Grouping(self.queries[queries], self.keys[keys]),
            _tokens(self.queries, queries),
            _tokens(self.keys, keys),
        )


def _tokens(sizes: Sequence[int], part: slice) -> slice:
    """Return the tokens of some groups."""
    start = sum(sizes[: part.start])
    return slice(start, start + sum(sizes[part]))


def parse_grouping(document: Mapping[str, Any], by: str, groups: str | None, key_groups: str | None) -> Grouping:
    """Resolve the parameters for the tokens of an analysis. Raises InvalidRequest."""
    tokens = document["tokens"]
    key_tokens = document["key_tokens"] or tokens
    if groups is None and key_groups is None:
        return Grouping() if by == "token" else Grouping(_word_sizes(tokens), _word_sizes(key_tokens))
    if key_groups is None and document["key_tokens"] is None:
        key_groups = groups
    queries = _parse_groups(groups, len(tokens), "/groups") if groups else [1] * len(tokens)
    keys = _parse_groups(key_groups, len(key_tokens), "/key_groups") if key_groups else [1] * len(key_tokens)
    return Grouping(queries, keys)


def _word_sizes(tokens: Sequence[dict[str, Any]]) -> list[int]:
    return word_groups(TOKENS.validate_python(tokens))[0]


def _parse_groups(text: str, count: int, pointer: str) -> list[int]:
    """Parse groups into their sizes: `0,1|3-5` of 7 tokens -> [2, 1, 3, 1]. Tokens outside any group form their own."""
    sizes, end = [], 0
    for part in text.split("|"):
        numbers = [number for piece in part.split(",") for number in _parse_range(piece, count, pointer)]
        first, last = numbers[0], numbers[-1]
        if numbers != list(range(first, last + 1)) or first < end:
            raise InvalidRequest("Groups must be contiguous and in ascending order.", pointer=pointer)
        sizes += [1] * (first - end) + [len(numbers)]
        end = last + 1
    return sizes + [1] * (count - end)


def _parse_range(piece: str, count: int, pointer: str) -> range:
    """Parse `4`, or `2-5` with its end included."""
    matched = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", piece)
    if matched is None:
        raise InvalidRequest("Write groups as token indices, such as 0,1|2|3-5.", pointer=pointer)
    first = int(matched[1])
    last = int(matched[2] or first)
    if last < first:
        raise InvalidRequest(f"The range {piece} ends before its start.", pointer=pointer)
    if last >= count:
        raise InvalidRequest(f"Token indices range from 0 to {count - 1}.", pointer=pointer)
    return range(first, last + 1)
