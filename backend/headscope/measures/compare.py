"""Similarity of two maps of one head: between two models, two mechanisms, or two inputs of the same tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from ..core.arrays import Array, divide
from ..core.declarations import Declaration
from ..errors import InvalidRequest, Unsupported

# Entries converted to float64 at once.
PART = 2**18


@dataclass(frozen=True, kw_only=True)
class MapComparison(Declaration):
    """A number for two maps [Q, K] of equal shape. `signed` tells whether it is defined for negative entries, `similar` whether larger means more alike.

    `compute` takes N pairs at once, [N, Q, K] each with zeros in rows without a reading, and returns [N].
    """

    compute: Callable[[Array, Array], Array]
    signed: bool = False
    similar: bool = False

    def __call__(self, a: Array, b: Array) -> Array:
        """Compare maps [..., Q, K]: [...] in float64. Raises InvalidRequest for different shapes, Unsupported for signed maps if they are not accepted."""
        if a.shape != b.shape or a.ndim < 2:
            raise InvalidRequest(
                "Only maps of the same shape can be compared: the same layers, heads and number of tokens."
            )
        if not self.signed and (np.nanmin(a, initial=0) < 0 or np.nanmin(b, initial=0) < 0):
            raise Unsupported(
                f"{self.title} is defined only for maps without negative entries. Compare signed maps by their cosine."
            )
        shape = a.shape[-2:]
        result, ours, theirs = np.empty(prod(a.shape[:-2])), a.reshape(-1, *shape), b.reshape(-1, *shape)
        step = max(1, PART // max(1, prod(shape)))
        for low in range(0, len(result), step):
            one, other = (side[low : low + step].astype(np.float64) for side in (ours, theirs))
            unread = ~(np.isfinite(one).all(-1) & np.isfinite(other).all(-1))  # rows without a reading in either
            one[unread] = other[unread] = 0
            result[low : low + step] = self.compute(one, other)
        return result.reshape(a.shape[:-2])


def cosine(a: Array, b: Array) -> Array:
    """Cosine of the angle between two maps [N, Q, K] as vectors, [N], -1..1; NaN if one is all zeros."""
    lengths = np.sqrt(_products(a, a)) * np.sqrt(_products(b, b))
    return divide(_products(a, b), lengths).clip(-1, 1)


def _products(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("nqk,nqk->n", a, b))


def js_divergence(a: Array, b: Array) -> Array:
    """Mean over rows of the Jensen-Shannon divergence of two maps [N, Q, K], base 2, [N], 0..1.

    Rows are scaled to sum to 1; rows of zeros are left out, and the result is NaN if all are.
    """
    sums = a.sum(-1), b.sum(-1)
    defined = (sums[0] > 0) & (sums[1] > 0)  # [N, Q]
    p, q = (side / np.where(defined, total, 1)[..., None] for side, total in zip((a, b), sums, strict=True))
    middle = (p + q) / 2
    rows = np.zeros(defined.shape)
    for side in (p, q):
        ratio = np.divide(side, middle, out=np.ones_like(side), where=side > 0)
        rows += np.einsum("nqk,nqk->nq", side, np.log2(ratio, out=ratio)) / 2
    return divide(np.where(defined, rows, 0).sum(-1), defined.sum(-1)).clip(0, 1)


COSINE = MapComparison(
    name="cosine",
    title="Cosine",
    doc="The cosine between two maps of a head, each read as one long vector: 1 for maps that agree up to a factor.",
    not_="Not near 0 for unrelated weights: weights are never negative and tend to share vertical stripes, which raises it. Compare with heads that have nothing in common.",
    citation="Kovaleva et al. 2019, Revealing the Dark Secrets of BERT, sec. 4.3, on maps without padding",
    range=(-1.0, 1.0),
    signed=True,
    similar=True,
    compute=cosine,
)

JS_DIVERGENCE = MapComparison(
    name="js_divergence",
    title="Jensen-Shannon divergence",
    doc="How differently two maps of a head spread each query's attention, as the mean over queries: 0 for equal rows, 1 for rows that share no key.",
    not_="Not defined for signed maps, and not a distance: its square root is one.",
    citation="Lin 1991, Divergence measures based on the Shannon entropy; between heads: Clark et al. 2019, sec. 6 (without their smoothing)",
    unit="bits",
    range=(0.0, 1.0),
    compute=js_divergence,
)

COMPARISONS: dict[str, MapComparison] = {comparison.name: comparison for comparison in (COSINE, JS_DIVERGENCE)}
