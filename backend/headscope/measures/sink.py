"""Attention sinks: tokens to which most queries attend."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ._maps import clean, special
from .base import ByRows, Measure, is_on_weight_scale

COLUMNS = ("value", "is_sink", "position")


class SinkParams(Params):
    """Where to look, and what counts as a sink."""

    epsilon: float = Field(0.3, ge=0, le=1, description="A sink receives more than this on average.")
    position: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description="Index of the token, counted from 0. By default the first token in causal models, and the special token that receives most in others.",
    )


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: SinkParams) -> Tensor:
    """Return the mean of a token's column over the queries that may see it, whether it is a sink, and the token's index: [H, C] in the order of COLUMNS.

    In a causal model these are the queries from that token on, so the first token includes its own row, which is 1. NaN where the input has no such token,
    and for inputs without special tokens in models that are not causal.
    """
    return _combine(layer, readings, _received(layer, lens, readings, params), params)


def _places(layer: Layer, params: SinkParams) -> Tensor:
    """Return the indices of the tokens that may be the sink, [P]."""
    if params.position is not None:
        return torch.tensor([params.position] if params.position < len(layer.axes.keys) else [], dtype=torch.long)
    return torch.zeros(1, dtype=torch.long) if layer.causal else layer.special[1].nonzero()[:, 0]


def _received(layer: Layer, lens: str, readings: Mapping[str, Reading], params: SinkParams) -> Tensor:
    """Return what each query gives to each of these tokens, [H, Q, P]; NaN if it has no reading or may not see the token."""
    rows, there = clean(readings[lens])
    places = _places(layer, params)
    within = places.clamp_max(rows.shape[2] - 1)
    seen = (
        there[..., None] & layer.keys.sees(torch.arange(rows.shape[1])[:, None], within) & (places == within)
    )  # [H, Q, P]
    return rows[..., within].masked_fill(~seen, torch.nan)


def _combine(layer: Layer, facts: Mapping[str, Reading], received: Tensor, params: SinkParams) -> Tensor:
    places = _places(layer, params)
    if len(places) == 0:
        return torch.full((len(received), len(COLUMNS)), torch.nan, dtype=received.dtype)
    values, best = (
        received.nanmean(1).nan_to_num(nan=-torch.inf).max(-1)
    )  # [H]; a token that no query sees is not a candidate
    values = values.masked_fill(values == -torch.inf, torch.nan)
    is_sink = (values > params.epsilon).to(values.dtype).masked_fill(values.isnan(), torch.nan)
    return torch.stack([values, is_sink, places[best].to(values.dtype).masked_fill(values.isnan(), torch.nan)], -1)


SINK = Measure(
    name="sink",
    title="Attention sink",
    doc="The mean weight of the first token (in causal models) or of the special token that receives most (in others), whether it is above a threshold, "
    "and which token that is.",
    not_="Not influence: a sink with a short value vector absorbs attention without passing anything on. Not comparable between lengths, because the mean falls with "
    "the number of tokens.",
    citation="Gu et al. 2025, When Attention Sink Emerges in Language Models, sec. 3 (64 tokens, epsilon 0.3, first token)",
    params=SinkParams,
    shape="L H C",
    columns=COLUMNS,
    accepts=is_on_weight_scale,
    phrases={
        "is_sink = 1": ("sink", "attention sink", "attention sinks"),
        "value": ("sink strength", "sink score"),
    },
    compute=compute,
    by_rows=ByRows(_received, _combine),
    looks=special,
)
