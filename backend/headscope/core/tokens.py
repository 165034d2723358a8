"""Tokens of an input, and the tokens along the axes of its maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from .lazy import Tensor, torch

TokenKind = Literal["special", "punct", "word", "subword"]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the input.

    `text` is what stands at [start, end) of the text (of the second text when `segment` is 1), in characters; special and unknown tokens
    carry their own name. `word` counts the words of both texts from 0 and is None for special tokens. `pos` and `label` are the part of speech and the
    entity label that came with the request. A patch of an image has a `box` [left, top, right, bottom) in pixels of the image as the model sees it.
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


@dataclass(frozen=True, slots=True)
class Axes:
    """The tokens along axes Q and K of a map: the same ones, but for cross-attention."""

    queries: tuple[Token, ...]
    keys: tuple[Token, ...]

    @property
    def same(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.queries == self.keys


# Which tokens of an input are of some kind.
Marks = Callable[[tuple[Token, ...]], list[bool]]


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """The tokens of several inputs that are equally long. What is said of them is made once: layers share it."""

    axes: tuple[Axes, ...]
    _made: dict[Marks, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def marked(self, which: Marks) -> tuple[Tensor, Tensor]:
        """Which queries [1 or B, Q] and which keys [1 or B, K] are some tokens, as bool tensors; 1 where it is the same of all inputs."""
        if which not in self._made:
            every = [(which(axes.queries), which(axes.keys)) for axes in self.axes]
            queries, keys = zip(*(every[:1] if all(one == every[0] for one in every) else every), strict=True)
            self._made[which] = torch.tensor(queries), torch.tensor(keys)
        return self._made[which]
