"""How far from the query a head attends, and its largest weight: the numbers by which HeadVis ranks heads and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.attention import Layer, Reading
from ..core.lazy import Tensor, torch
from ._maps import clean, nothing
from .base import Measure, is_distribution

# The smallest distance of each bin; the last bin has no upper end.
STARTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
COLUMNS = ("mean", "square", *(f"from_{start}" for start in STARTS))


def qk_distance(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return the mean of |query - key| and of its square, weighted by attention, and the shares of attention by distance: [H, C] in the order of COLUMNS.

    NaN for a head whose map is zero.
    """
    rows, _ = clean(readings[lens])
    heads, queries, keys = rows.shape
    distances = (torch.arange(queries)[:, None] - torch.arange(keys)).abs()
    mass = torch.zeros(heads, max(queries, keys), dtype=torch.float64)
    mass.index_add_(1, distances.flatten(), rows.flatten(1).double())
    total, away = mass.sum(-1), torch.arange(mass.shape[1], dtype=torch.float64)
    bins = torch.bucketize(away, torch.tensor(STARTS, dtype=torch.float64), right=True) - 1
    by_bin = torch.zeros(heads, len(STARTS), dtype=torch.float64).index_add_(1, bins, mass)
    found = torch.cat([(mass @ away)[:, None], (mass @ away.square())[:, None], by_bin], -1)
    return (found / total[:, None]).to(rows.dtype)


def max_activation(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return the largest entry outside the first row and the first column, [H]; NaN for fewer than two tokens."""
    rows, there = clean(readings[lens])
    inner = rows[:, 1:, 1:]
    if inner.numel() == 0:
        return torch.full((len(rows),), torch.nan, dtype=rows.dtype)
    return inner.amax((-1, -2)).masked_fill(~there[:, 1:].any(-1), torch.nan)


QK_DISTANCE = Measure(
    name="qk_distance",
    title="Distance of attention",
    doc="The distance in tokens between a query and what it attends to: the mean weighted by attention, the mean square, and the share of attention at each distance.",
    not_="Not comparable between texts of different length: the first token, often a sink, is far from late queries. Distances count tokens, not words.",
    citation="Luger, Kamath et al. 2026, Visualizing Attention Heads (HeadVis): qk_distance, and bins of its histogram",
    range=(0.0, None),
    unit="tokens",
    shape="L H C",
    columns=COLUMNS,
    units={"square": "tokens²", **dict.fromkeys(COLUMNS[2:], "1")},
    needs=("same-tokens",),
    accepts=is_distribution,
    phrases={
        "mean": (
            "distance",
            "tokens away",
            "away",
            "attention distance",
            "long-range",
            "far away",
            "distant tokens",
            "long distance",
        ),
        "-mean": (
            "local",
            "attends locally",
            "nearby",
            "nearby words",
            "short-range",
            "close neighbours",
            "neighbouring tokens",
        ),
    },
    compute=qk_distance,
    looks=nothing,
)

MAX_ACTIVATION = Measure(
    name="max_activation",
    title="Largest weight",
    doc="The largest weight of a head's map outside the first row and the first column: how focused the head ever is in this text.",
    not_="Not influence, and not a mean: a single entry decides. A special last token is not left out.",
    citation="Luger, Kamath et al. 2026, Visualizing Attention Heads (HeadVis): max_activation, which ranks texts by head",
    range=(0.0, 1.0),
    shape="L H",
    accepts=is_distribution,
    phrases={
        "": (
            "largest single weight",
            "maximum weight",
            "largest entry",
            "highest peak",
            "strongest single connection of the head",
        )
    },
    compute=max_activation,
    looks=nothing,
)
