"""Attention sinks: tokens to which most queries attend."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ._maps import clean, is_causal, special
from .base import Measure, is_on_weight_scale

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
    rows, there = clean(readings[lens])
    heads, queries, keys = rows.shape
    if params.position is not None:
        places = torch.tensor([params.position] if params.position < keys else [], dtype=torch.long)
    else:
        places = torch.zeros(1, dtype=torch.long) if is_causal(layer) else layer.special[1].nonzero()[:, 0]
    if len(places) == 0:
        return torch.full((heads, len(COLUMNS)), torch.nan, dtype=rows.dtype)
    seen = there[..., None] & layer.keys.allowed(queries, keys)[:, places]  # [H, Q, P]
    received = rows[..., places].where(seen, 0).sum(1) / seen.sum(1)  # [H, P]
    values, best = received.nan_to_num(nan=-torch.inf).max(-1)  # [H]; a token that no query sees is not a candidate
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
    looks=special,
)
