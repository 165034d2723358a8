"""What every battery declares, and the prompts that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..core.arrays import Array
from ..core.tokens import Token

# Characters of a text, from the first up to the last.
Span = tuple[int, int]


class TokenSource(Protocol):
    """The tokens of a model."""

    def draw(self, random: np.random.Generator, count: int) -> list[int]:
        """Return different ordinary tokens, drawn at random."""

    def read(self, text: str) -> tuple[Token, ...]:
        """Return the tokens of a text, special ones included. Raises Unsupported without a tokenizer."""

    def find(self, words: Sequence[str]) -> dict[str, int]:
        """Return the words that are one token after a space, with its number. Raises Unsupported without a tokenizer."""


@dataclass(frozen=True)
class AttentionPrompt:
    """Token ids, and bool [Q, K]: the keys that are `right` for each query, and the `others` that the control draws from. Queries without both do not count."""

    ids: list[int]
    right: Array
    others: Array

    def score(self, weights: Array) -> tuple[Array, Array]:
        """Return the share of the attention of the queries that goes to right keys, and to as many others drawn at random: weights [..., Q, K] -> [...] each, 0..1.

        The second is the mean over all draws.
        """
        counts, choices = self.right.sum(-1), self.others.sum(-1)
        asked = (counts > 0) & (choices > 0)
        total = weights[..., asked, :].sum((-1, -2))
        drawn = self.others * (counts / np.maximum(choices, 1))[:, None]
        right, other = ((weights * one)[..., asked, :].sum((-1, -2)) / total for one in (self.right, drawn))
        return right, other


@dataclass(frozen=True)
class ChoicePrompt:
    """Token ids, and the ids of tokens that may follow them, of which number `right` is the right one."""

    ids: list[int]
    answers: list[int]
    right: int

    def score(self, written: Array) -> tuple[Array, Array]:
        """Return whether a head raises the right answer most, and the chance that it raises most another answer that is drawn at random: [...] each, 0..1.

        written [..., answers] are contributions to their logits.
        """
        hit = (written.argmax(-1) == self.right).astype(float)
        return hit, (1 - hit) / (len(self.answers) - 1)


Prompt = AttentionPrompt | ChoicePrompt


@dataclass(frozen=True, kw_only=True)
class Battery:
    """A test of heads: what it finds, what it does not show, and how a prompt for it is made."""

    name: str
    title: str
    doc: str
    not_: str
    citation: str
    make: Callable[[np.random.Generator, TokenSource], Prompt]


def earlier(right: Array) -> Array:
    """Return the keys before each query that are not right, but for the first one, where many heads rest: bool [Q, K]."""
    others: Array = np.tri(len(right), k=-1, dtype=bool) & ~right
    others[:, 0] = False
    return others


def within(tokens: Sequence[Token], spans: Sequence[Span]) -> Array:
    """Return which tokens have a character of one of the spans, bool [n]."""
    found = [token.start < token.end and any(token.start < b and a < token.end for a, b in spans) for token in tokens]
    return np.array(found)


def from_the_last(tokens: Sequence[Token], right: Array, others: Array) -> AttentionPrompt:
    """Return a prompt whose last token asks; `right` and `others` are keys, bool [K]."""
    rows = np.zeros((2, len(tokens), len(tokens)), bool)
    rows[:, -1] = right, others
    return AttentionPrompt([token.id for token in tokens], *rows)
