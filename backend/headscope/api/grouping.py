"""Tokens read together: the words of the text, or groups that the caller names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Query

from ..core.tokens import Token
from ..core.words import group, word_groups
from ..errors import InvalidRequest
from .http.tensors import Array

By = Annotated[
    Literal["token", "word"],
    Query(description="`word`: the pieces of a word are summed over keys and averaged over queries."),
]
Groups = Annotated[
    str | None,
    Query(
        max_length=20_000,
        description="Query tokens to read together, such as `0,1|2|3-5`; those not named stand alone. Without `key_groups` it holds for keys, too.",
    ),
]
KeyGroups = Annotated[str | None, Query(max_length=20_000, description="The same for key tokens.")]


@dataclass(frozen=True)
class Grouping:
    """How many tokens each row and each column of a map by word holds; None where it stays by token."""

    queries: list[int] | None = None
    keys: list[int] | None = None

    def apply(self, maps: Array) -> Array:
        """[..., Q, K] -> [..., V, W]."""
        if self.queries is None or self.keys is None:
            return maps
        return group(maps, self.queries, self.keys)


def grouping(document: dict[str, Any], by: str, groups: str | None, key_groups: str | None) -> Grouping:
    """What was asked of this analysis' tokens. Raises InvalidRequest."""
    tokens = document["tokens"]
    key_tokens = document["key_tokens"] or tokens
    same = document["key_tokens"] is None
    if groups is None and key_groups is None:
        return Grouping() if by == "token" else Grouping(sizes(tokens), sizes(key_tokens))
    if key_groups is None and same:
        key_groups = groups
    queries = _parsed(groups, len(tokens), "/groups") if groups else [1] * len(tokens)
    keys = _parsed(key_groups, len(key_tokens), "/key_groups") if key_groups else [1] * len(key_tokens)
    return Grouping(queries, keys)


def sizes(tokens: Sequence[dict[str, Any]]) -> list[int]:
    """Number of tokens of each word."""
    return word_groups([Token(**token) for token in tokens])[0]


def words(tokens: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each word's token numbers and text."""
    counts, texts = word_groups([Token(**token) for token in tokens])
    found, start = [], 0
    for count, text in zip(counts, texts, strict=True):
        found.append({"tokens": list(range(start, start + count)), "text": text})
        start += count
    return found


def _parsed(asked: str, count: int, pointer: str) -> list[int]:
    """`0,1|3-5` of 7 tokens -> [2, 1, 3, 1]: groups of neighbours in their order, what lies between them by itself."""
    result, at = [], 0
    for part in asked.split("|"):
        numbers = [number for piece in part.split(",") for number in _numbers(piece, count, pointer)]
        first, last = numbers[0], numbers[-1]
        if numbers != list(range(first, last + 1)) or first < at:
            raise InvalidRequest("A group holds neighbouring tokens, and groups stand in their order.", pointer=pointer)
        result += [1] * (first - at) + [len(numbers)]
        at = last + 1
    return result + [1] * (count - at)


def _numbers(piece: str, count: int, pointer: str) -> range:
    """`4` or `2-5`, the end included."""
    matched = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", piece)
    if matched is None:
        raise InvalidRequest("Groups are token numbers such as 0,1|2|3-5.", pointer=pointer)
    first = int(matched[1])
    last = int(matched[2] or first)
    if not first <= last < count:
        raise InvalidRequest(f"There are tokens 0 to {count - 1}.", pointer=pointer)
    return range(first, last + 1)
