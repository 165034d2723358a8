"""What the measures of heads have in common: rows without a reading, maps as distributions, which token is what."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading
from ..core.lazy import Tensor
from ..core.tokens import Token


def clean(reading: Reading) -> tuple[Tensor, Tensor]:
    """The map in float32 with 0 in rows that have no reading, and which rows have one. [H, Q, K], [H, Q] (bool)."""
    rows = reading.map.float()
    there = reading.row_sums().isfinite()
    if bool(there.all()):
        return rows, there
    return rows.masked_fill(~there[..., None], 0), there


def distributions(lens: str, reading: Reading) -> tuple[Tensor, Tensor]:
    """Rows that sum to 1: weights as they are, any other map as |entry| / sum |entry|. [H, Q, K], and which rows have anything in them [H, Q].

    Weights of a model with a learned sink sum to less than 1 and stay so.
    """
    rows, there = clean(reading)
    if lens == "weights":
        return rows, there
    rows = rows.abs()
    totals = rows.sum(-1, keepdim=True)
    there = there & (totals[..., 0] > 0)
    return rows.div_(totals.masked_fill_(totals == 0, 1)), there


def mean(values: Tensor, rows: Tensor) -> Tensor:
    """Mean over the chosen queries; NaN where none is chosen. [H, Q], [H, Q] (bool) -> [H]."""
    return (values * rows).sum(-1) / rows.sum(-1)


def is_causal(layer: Layer) -> bool:
    """Whether queries see themselves and tokens before them only."""
    mask = layer.keys.mask
    if mask is None:
        return layer.keys.rule == "prefix"
    return layer.axes.same and not bool(mask.triu(1).any())


def nothing(token: Token, params: Any) -> object:
    """What measures look at in a token that are about numbers of the map alone, or ask Layer.marked which tokens are special."""
    return None


def special(token: Token, params: Any) -> object:
    """What measures look at in a token that have to know which tokens are special, and which of these are called alike."""
    return token.text if token.kind == "special" else None


def are_special(tokens: tuple[Token, ...]) -> list[bool]:
    """Which tokens are special."""
    return [token.kind == "special" for token in tokens]


def are_second(tokens: tuple[Token, ...]) -> list[bool]:
    """Which tokens belong to the second text."""
    return [token.segment == 1 for token in tokens]


def are_closing(tokens: tuple[Token, ...]) -> list[bool]:
    """Which tokens are separators."""
    closing = set(separators(tokens))
    return [place in closing for place in range(len(tokens))]


def separators(tokens: tuple[Token, ...]) -> list[int]:
    """Places of the special tokens that close a text: those named like the last special token, the very first token aside."""
    special = [place for place, token in enumerate(tokens) if token.kind == "special" and place > 0]
    return [place for place in special if tokens[place].text == tokens[special[-1]].text]
