"""Special tokens: how much of a head's attention goes to them, and how much of its output comes from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ._maps import are_closing, are_special, clean, marked_in, nothing, special
from .base import ByRows, Measure, is_attention

COLUMNS = ("first", "separator", "all")


class SpecialTokensParams(Params):
    """Which queries are averaged."""

    queries: Literal["other", "all"] = Field(
        "other",
        description="Queries in the mean: `other` excludes special tokens, as in the paper's text; `all` includes them, as in its code.",
    )


def attention(layer: Layer, lens: str, readings: Mapping[str, Reading], params: SpecialTokensParams) -> Tensor:
    """Return the mean over queries of the entries in the columns of special tokens, [H, C] in the order of COLUMNS; NaN where the input has no such token.

    Entries are used as they are: parts of 1 for weights, signed for effective attention, lengths of vectors for norms. Queries without a reading are left out.
    """
    return _combine(layer, readings, _sums(layer, lens, readings, params), params)


def _sums(layer: Layer, lens: str, readings: Mapping[str, Reading], params: SpecialTokensParams) -> Tensor:
    """Return how many queries count, and the sum of their rows, [H, 1 + K]."""
    rows, there = clean(readings[lens])
    queries, _ = marked_in(layer, are_special, rows)
    counted = (there if params.queries == "all" else there & ~queries).to(rows.dtype)
    return torch.cat([counted.sum(-1, keepdim=True), (counted[:, None] @ rows)[:, 0]], -1)


def _combine(layer: Layer, facts: Mapping[str, Reading], sums: Tensor, params: SpecialTokensParams) -> Tensor:
    (_, keys), (_, closing) = layer.marked(are_special), layer.marked(are_closing)
    received = sums[:, 1:] / sums[:, :1]  # [H, K]
    found = [
        received[:, :1].masked_fill(~keys[:, :1], torch.nan).sum(-1),
        received.masked_fill(~closing, -torch.inf).amax(-1).masked_fill(~closing.any(-1), torch.nan),
        (received * keys).sum(-1).masked_fill(~keys.any(-1), torch.nan),
    ]
    return torch.stack(found, -1)


SPECIAL_TOKENS = Measure(
    name="special_tokens",
    title="Attention to special tokens",
    doc="How much attention a head gives to the first token if it is special ([CLS], a start token), to the separator that receives most, "
    "and to all special tokens together: the mean over queries.",
    not_="Not what these tokens pass on: a head can attend to a separator whose value vector is close to zero. Signed for effective attention, where "
    "positive and negative entries of different queries cancel.",
    citation="Sun & Marasović 2021, figs. 5 and 6; after Kovaleva et al. 2019, sec. 4.5",
    params=SpecialTokensParams,
    needs=("kinds",),
    shape="L H C",
    columns=COLUMNS,
    accepts=is_attention,
    phrases={
        "first": (
            "[cls]",
            "cls",
            "attention to [cls]",
            "start token",
            "class token",
            "[bos]",
            "<s>",
            "classification token",
        ),
        "separator": (
            "[sep]",
            "sep",
            "attention to [sep]",
            "the separator",
            "end-of-sentence token",
            "[eos]",
            "</s>",
            "end of the text",
            "sentence end",
            "sentence boundary",
        ),
        "all": ("special tokens", "attention to [cls] and [sep]", "special symbols"),
    },
    compute=attention,
    by_rows=ByRows(_sums, _combine, summed=True),
    looks=nothing,
)


class SpecialBroadcastParams(Params):
    """Which queries count."""

    queries: Literal["other", "all"] = Field(
        default="other", description='Queries that count: "other" excludes special tokens, "all" includes every token.'
    )


def broadcast(layer: Layer, lens: str, readings: Mapping[str, Reading], params: SpecialBroadcastParams) -> Tensor:
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
    phrases={"": ("special tokens pass on to other tokens", "output that comes from special tokens")},
    compute=broadcast,
    looks=special,
)
