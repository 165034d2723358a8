"""Helpers of the measures of heads: rows without a reading, maps as distributions, kinds of tokens."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading
from ..core.lazy import Tensor
from ..core.tokens import Marks, Token


def clean(reading: Reading) -> tuple[Tensor, Tensor]:
    """Return the map in float32 with 0 in rows without a reading, and which rows have one. [H, Q, K], [H, Q] (bool)."""
    rows = reading.map.float()
    there = reading.row_sums().isfinite()
    if bool(there.all()):
        return rows, there
    return rows.masked_fill(~there[..., None], 0), there


def distributions(lens: str, reading: Reading) -> tuple[Tensor, Tensor]:
    """Return rows that sum to 1: weights unchanged, any other map as |entry| / sum |entry|. [H, Q, K], and which rows are not empty [H, Q].

    Weights of a model with a learned sink sum to less than 1 and are not rescaled. Rows of zeros, as of a head that is switched off, are empty.
    """
    rows, there = clean(reading)
    if lens == "weights":
        return rows, there & (reading.row_sums() != 0)
    rows = rows.abs()
    totals = rows.sum(-1, keepdim=True)
    there = there & (totals[..., 0] > 0)
    return rows.div_(totals.masked_fill_(totals == 0, 1)), there


def mean(values: Tensor, rows: Tensor) -> Tensor:
    """Return the mean over the chosen queries; NaN where none is chosen. [H, Q], [H, Q] (bool) -> [H]."""
    return (values * rows).sum(-1) / rows.sum(-1)


def marked_in(layer: Layer, which: Marks, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return which queries [1 or H, R] and which keys [1 or H, K'] of some rows [H, R, K'] are such tokens."""
    (queries, keys), first = layer.marked(which), layer.keys.first
    return queries[:, first : first + rows.shape[1]], keys[:, : rows.shape[2]]


def nothing(token: Token, params: Any) -> object:
    """Look at no property of a token: for measures of the map alone, and those that ask Layer.marked which tokens are special."""
    return None


def special(token: Token, params: Any) -> object:
    """Look at whether a token is special, and at its name: for measures that compare special tokens by name."""
    return token.text if token.kind == "special" else None


def are_special(tokens: tuple[Token, ...]) -> list[bool]:
    """Return which tokens are special."""
    return [token.kind == "special" for token in tokens]


def are_second(tokens: tuple[Token, ...]) -> list[bool]:
    """Return which tokens belong to the second text."""
    return [token.segment == 1 for token in tokens]


def are_closing(tokens: tuple[Token, ...]) -> list[bool]:
    """Return which tokens are separators."""
    closing = set(separators(tokens))
    return [place in closing for place in range(len(tokens))]


def separators(tokens: tuple[Token, ...]) -> list[int]:
    """Return the indices of special tokens that end a text: those with the name of the last special token, except the very first token."""
    special = [place for place, token in enumerate(tokens) if token.kind == "special" and place > 0]
    return [place for place in special if tokens[place].text == tokens[special[-1]].text]
