"""How much of a head's output comes from special tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor
from ._maps import special
from .base import Measure


class SpecialBroadcastParams(Params):
    """Which queries count."""

    queries: Literal["other", "all"] = Field(
        default="other", description='Queries that count: "other" excludes special tokens, "all" includes every token.'
    )


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: SpecialBroadcastParams) -> Tensor:
    """Return sum_i sum_{j special} N_ij / sum_i sum_j N_ij with the norms N of the lens `norm`, [H], 0..1. NaN where no query counts or all norms are 0."""
    queries, keys = (place.to(layer.weights.device) for place in layer.special)
    contributions = readings["norm"].map
    if params.queries == "other":
        contributions = contributions[:, ~queries]
    by_key = contributions.sum(1).double()  # [H, K]
    return (by_key * keys).sum(-1) / by_key.sum(-1)


SPECIAL_BROADCAST = Measure(
    name="special_broadcast",
    title="Broadcast by special tokens",
    doc="The share of special tokens such as [CLS] and [SEP] in the head's output at other tokens: their part of the norms of all contributions.",
    not_="Not a share of attention weight, and not how much the output would change without them: contributions of several tokens can cancel.",
    citation="Norms of Kobayashi et al. 2020, summed over the special tokens, whose role in passing on information Yang et al. 2023 (PASTA) use",
    range=(0.0, 1.0),
    params=SpecialBroadcastParams,
    shape="L H",
    needs=("kinds", "values", "projection"),
    reads=("norm",),
    compute=compute,
    looks=special,
)
