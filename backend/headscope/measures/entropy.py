"""Entropy of attention rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ..core.arrays import Array, divide
from ..core.attention import Layer, Reading
from ..core.lazy import Tensor
from ._maps import nothing
from .base import Measure, is_distribution

Unit = Literal["nats", "bits", "perplexity", "normalised"]


def row_entropy(weights: Tensor) -> Tensor:
    """-sum_k A ln A per row, with 0 ln 0 = 0 and no smoothing. [..., Q, K] -> [..., Q], nats, 0..ln(allowed keys).

    >>> import torch
    >>> row_entropy(torch.full((1, 4), 0.25)).item()
    1.3862943649291992
    """
    # A weight of 0 times the logarithm of a small number is 0, as it should be; several times faster than torch.special.entr.
    logarithms = weights.clamp_min(1e-38).log_()
    return logarithms.mul_(weights).sum(-1).neg_()


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return the entropy [H, Q] in nats of a map whose rows are distributions; NaN for rows without a reading."""
    return readings[lens].once(row_entropy)


def convert(nats: Array, unit: Unit, keys: Array) -> Array:
    """Convert entropies to another unit; `keys` is the number of allowed keys per query, broadcastable to `nats`.

    bits: nats / ln 2. perplexity: exp(nats), the effective number of attended tokens. normalised: nats / ln(keys), 0..1, NaN for a query with a single
    key, whose entropy cannot vary.
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
    not_="Not comparable between texts of different length without normalising, and not defined for signed maps such as effective attention.",
    citation="Shannon 1948; for heads: Clark et al. 2019, sec. 3.2 (without their smoothing)",
    unit="nats",
    range=(0.0, None),
    shape="L H Q",
    accepts=is_distribution,
    compute=compute,
    looks=nothing,
)
