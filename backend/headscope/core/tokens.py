"""Tokens of an input, and the tokens along the axes of its maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import TypeAdapter

from .lazy import Tensor, torch

TokenKind = Literal["special", "punct", "word", "subword", "image"]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the input.

    `text` is the text from character `start` up to `end` (of the second text if `segment` is 1); special and unknown tokens have their own name instead.
    `word` counts the words of both texts from 0 and is None for special tokens. `pos` and `label` are the part of speech and the entity label given with
    the request. A patch of an image has a `box` [left, top, right, bottom) in pixels of the image as the model sees it; beside a text its kind is "image".
    A token of a message of a conversation has the `role` of its author: system, user or assistant.
    """

    text: str
    id: int
    start: int
    end: int
    word: int | None
    segment: int
    kind: TokenKind
    pos: str | None = None
    label: str | None = None
    box: tuple[int, int, int, int] | None = None
    role: str | None = None


# Reads tokens from a JSON document, and writes them into one: dataclasses.asdict would take 20 ms for two thousand.
TOKENS = TypeAdapter(list[Token])


@dataclass(frozen=True, slots=True)
class Axes:
    """The tokens along axes Q and K of a map. They differ in cross-attention only."""

    queries: tuple[Token, ...]
    keys: tuple[Token, ...]

    @property
    def same(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.queries == self.keys


# Tells which tokens of an input are of some kind, or gives each a number.
Marks = Callable[[tuple[Token, ...]], list[bool] | list[int]]


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """The tokens of several inputs of one length. Masks over them are built once and shared by all layers."""

    axes: tuple[Axes, ...]
    _made: dict[Marks, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def marked(self, which: Marks) -> tuple[Tensor, Tensor]:
        """Return which queries [1 or B, Q] and which keys [1 or B, K] are such tokens, as bool tensors; one row if all inputs agree."""
        if which not in self._made:
            every = [(which(axes.queries), which(axes.keys)) for axes in self.axes]
            queries, keys = zip(*(every[:1] if all(one == every[0] for one in every) else every), strict=True)
            self._made[which] = torch.tensor(queries), torch.tensor(keys)
        return self._made[which]
