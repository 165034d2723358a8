"""How concentrated the rows of a map are: the entropy of attention, and numbers that are defined for signed maps, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from ..core.arrays import Array, divide
from ..core.attention import Layer, Reading, required
from ..core.lazy import Tensor, torch
from ..core.rows import largest_weights
from ._maps import nothing
from .base import ByRows, Measure, is_distribution, is_of_heads, is_signed

# A normal number of float32: logarithms of subnormal ones, below 1.18e-38, take five times as long or more, and half of a causal map is 0.
SMALLEST = 1.2e-38

Unit = Literal["nats", "bits", "perplexity", "normalised"]


def row_entropy(weights: Tensor) -> Tensor:
    """-sum_k A ln A per row, with 0 ln 0 = 0 and no smoothing. [..., Q, K] -> [..., Q], nats, 0..ln(allowed keys) for rows that sum to 1.

    A row that sums to s < 1, beside a learned sink, has s H - s ln s, where H is the entropy of the row divided by s: at most ln K for K > 2 keys, and K / e for fewer.

    >>> import torch
    >>> row_entropy(torch.full((1, 4), 0.25)).item()
    1.3862943649291992
    """
    # A weight of 0 times the logarithm of a small number is 0, as it should be.
    logarithms = weights.clamp_min(SMALLEST).log_()
    return logarithms.mul_(weights).sum(-1).neg_()


def entropy(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return the entropy [H, Q] in nats of a map whose rows are distributions; NaN for rows without a reading."""
    return readings[lens].once(row_entropy)


def entropy_of_rows(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return the entropy [H, R] of some rows."""
    if layer.weighted_logs is None or lens != "weights":
        return row_entropy(readings[lens].map)
    largest, _ = layer.once(largest_weights)
    return -largest.clamp_min(SMALLEST).log_() * readings[lens].row_sums() - layer.once(sum_of_logs)


def entropy_without_first(layer: Layer, rest: Tensor) -> Tensor:
    """Return the entropy [H, R] of the rows of a layer with weighted logs, without their first key and divided by their `rest` [H, R]; 0 where nothing is left.

    Either the first key has the largest weight, whose logarithm is 0 here, or the others have at least half of the row: nothing cancels.
    """
    largest, _ = layer.once(largest_weights)
    there = rest > 0
    total = rest.masked_fill(~there, 1)
    others = layer.once(sum_of_logs) - required(layer.weighted_logs)[..., 0]
    return ((total / largest.clamp_min(SMALLEST)).log_() - others / total) * there


def sum_of_logs(layer: Layer) -> Tensor:
    """Return sum_k A_k ln(A_k / max A) of every row, [H, R]: use Layer.once. No term is large where the entropy is small."""
    found: Tensor = required(layer.weighted_logs).sum(-1)
    return found


def convert(nats: Array, unit: Unit, keys: Array) -> Array:
    """Convert entropies to another unit; `keys` is the number of allowed keys per query, broadcastable to `nats`.

    bits: nats / ln 2. perplexity: exp(nats), the effective number of attended tokens. normalised: nats / ln(keys), NaN for a query with a single key, whose
    entropy cannot vary; 0..1 for rows that sum to 1, and up to 1.062 for two keys beside a learned sink.
    """
    if unit == "bits":
        return np.asarray(nats / np.log(2))
    if unit == "perplexity":
        return np.asarray(np.exp(nats))
    if unit == "normalised":
        return divide(nats, np.log(keys, dtype=np.float64))
    return nats


ENTROPY = Measure(
    name="entropy",
    title="Entropy",
    doc="How widely a query spreads its attention. 0 nats is a single token; its exponential, the perplexity, is the effective number of tokens attended to.",
    not_="Not comparable between texts of different length without normalising, and not defined for signed maps such as effective attention. "
    "Beside a learned sink, rows sum to less than 1, and 0 nats may also mean that the sink took everything.",
    citation="Shannon 1948; for heads: Clark et al. 2019, sec. 3.2 (without their smoothing)",
    unit="nats",
    range=(0.0, None),
    shape="L H Q",
    accepts=is_distribution,
    phrases={
        "": (
            "diffuse",
            "broad",
            "spread attention over many tokens",
            "uniform attention",
            "flat",
            "wide",
            "spread out",
            "attends broadly",
            "attends uniformly",
            "spread thin",
            "scattered",
            "smeared out over the whole sentence",
            "spread over the whole sentence",
            "blurry",
            "perplexity",
        ),
        "-": (
            "sharp",
            "focused",
            "peaked",
            "peaky",
            "narrow",
            "concentrated",
            "puts all attention on a single token",
            "one-hot attention",
            "one token",
            "narrow focus",
        ),
    },
    compute=entropy,
    by_rows=ByRows(entropy_of_rows),
    looks=nothing,
)


# Entries converted to float64 at once; bounds the scratch memory to a few tens of MB.
ENTRIES = 1024 * 1024


def participation(maps: Tensor) -> Tensor:
    """(sum |w|)² / sum w² of each row, in float64. [..., Q, K] -> [..., Q], 1..K, NaN for a row of zeros.

    >>> import torch
    >>> participation(torch.tensor([[0.5, -0.5, 0.0]])).item()
    2.0
    """
    wide = maps.double()  # squares of float32 can underflow
    return (wide.abs().sum(-1).square() / wide.square().sum(-1)).clamp_min(1)


def absolute_entropy(maps: Tensor) -> Tensor:
    """Entropy of |w| / sum |w| of each row, nats. [..., Q, K] -> [..., Q], 0..ln K, NaN for a row of zeros."""
    wide = maps.double().abs()
    return row_entropy(wide.div_(wide.sum(-1, keepdim=True))).clamp_min(0)


def negative_share(maps: Tensor) -> Tensor:
    """sum max(-w, 0) / sum |w| of each row. [..., Q, K] -> [..., Q], 0..1, NaN for a row of zeros."""
    wide = maps.double()
    return -wide.clamp_max(0).sum(-1) / wide.abs().sum(-1)


def _of(function: Callable[[Tensor], Tensor]) -> Callable[[Layer, str, Mapping[str, Reading], Any], Tensor]:
    def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
        maps = readings[lens].map
        rows = max(1, ENTRIES // (maps.shape[0] * maps.shape[2]))
        return torch.cat([function(part) for part in torch.split(maps, rows, dim=1)], dim=1)

    return compute


PARTICIPATION_RATIO = Measure(
    name="participation_ratio",
    title="Participation ratio",
    doc="The effective number of tokens in a row, from the squares of its entries: 1 is a single token, m is equal magnitude on m tokens. "
    "It is defined for signed maps, too, and small entries hardly count.",
    not_="Not the perplexity: both count tokens, but where rows sum to 1 the participation ratio is never larger, because large entries count for more.",
    citation="(Σ|w|)² / Σw², the inverse of the Herfindahl index of |w|",
    unit="tokens",
    range=(1.0, None),
    shape="L H Q",
    accepts=is_of_heads,
    phrases={"": ("effective number of tokens attended to",)},
    compute=_of(participation),
    by_rows=ByRows(_of(participation)),
    looks=nothing,
)

ABSOLUTE_ENTROPY = Measure(
    name="absolute_entropy",
    title="Entropy of magnitudes",
    doc="The entropy of a row's magnitudes, scaled to sum to 1. It makes signed maps, which have no entropy, comparable with the weights.",
    not_="Not the entropy of attention: the magnitudes of a signed row are no distribution, and the many small entries that a projection leaves raise it. "
    "The participation ratio is less sensitive to them.",
    citation="Shannon entropy of |w| / Σ|w|",
    unit="nats",
    range=(0.0, None),
    shape="L H Q",
    accepts=is_of_heads,
    phrases={"": ("entropy of absolute values",)},
    compute=_of(absolute_entropy),
    by_rows=ByRows(_of(absolute_entropy)),
    looks=nothing,
)

NEGATIVE_SHARE = Measure(
    name="negative_share",
    title="Negative share",
    doc="The share of a row's total magnitude that is negative: how far a signed map is from a distribution.",
    not_="Not an error of the method: the map of smallest norm with a given output is negative wherever that makes it smaller.",
    citation="Σ max(-w, 0) / Σ|w|",
    range=(0.0, 1.0),
    shape="L H Q",
    accepts=is_signed,
    phrases={"": ("negative", "negative entries", "negative weights")},
    compute=_of(negative_share),
    by_rows=ByRows(_of(negative_share)),
    looks=nothing,
)
