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

    `sums` takes some rows of N pairs, [N, Q', K] each with zeros in rows without a reading, and returns T numbers of each pair, [T, N]; `result` makes [N] of
    these, summed over all rows.
    """

    sums: Callable[[Array, Array], Array]
    result: Callable[[Array], Array]
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
        ours, theirs = a.reshape(-1, *shape), b.reshape(-1, *shape)
        step = max(1, PART // max(1, prod(shape)))
        found = [self._compare(ours[low : low + step], theirs[low : low + step]) for low in range(0, len(ours), step)]
        return np.concatenate([np.zeros(0), *found]).reshape(a.shape[:-2])

    def _compare(self, a: Array, b: Array) -> Array:
        """Compare maps [N, Q, K], some rows at a time: [N]."""
        step = max(1, PART // max(1, len(a) * a.shape[2]))
        rows = [slice(low, low + step) for low in range(0, max(1, a.shape[1]), step)]
        return self.result(np.sum([self._sums(a[:, some], b[:, some]) for some in rows], axis=0))

    def _sums(self, a: Array, b: Array) -> Array:
        """Return the sums of some rows, [T, N]."""
        one, other = a.astype(np.float64), b.astype(np.float64)
        unread = ~(np.isfinite(one).all(-1) & np.isfinite(other).all(-1))  # rows without a reading in either
        one[unread] = other[unread] = 0
        return self.sums(one, other)


def products(a: Array, b: Array) -> Array:
    """Inner products of rows of maps [N, Q, K] with each other, with themselves, and of the other maps with themselves: [3, N]."""
    return np.stack([np.einsum("nqk,nqk->n", one, other) for one, other in ((a, b), (a, a), (b, b))])


def cosine(sums: Array) -> Array:
    """Cosine of the angle between two maps as vectors, from their products [3, N]: [N], -1..1; NaN if one is all zeros."""
    both, ours, theirs = sums
    return divide(both, np.sqrt(ours) * np.sqrt(theirs)).clip(-1, 1)


def divergences(a: Array, b: Array) -> Array:
    """Sum of the Jensen-Shannon divergences of rows of maps [N, Q, K], base 2, and the number of rows that have one: [2, N].

    Rows are scaled to sum to 1; rows of zeros have none.
    """
    sums = a.sum(-1), b.sum(-1)
    defined = (sums[0] > 0) & (sums[1] > 0)  # [N, Q]
    p, q = (side / np.where(defined, total, 1)[..., None] for side, total in zip((a, b), sums, strict=True))
    middle = (p + q) / 2
    rows = np.zeros(defined.shape)
    for side in (p, q):
        ratio = np.divide(side, middle, out=np.ones_like(side), where=side > 0)
        rows += np.einsum("nqk,nqk->nq", side, np.log2(ratio, out=ratio)) / 2
    return np.stack([np.where(defined, rows, 0).sum(-1), defined.sum(-1)])


def js_divergence(sums: Array) -> Array:
    """Mean over rows of their divergence, from the sum and the number of rows [2, N]: [N], 0..1; NaN if no row has one."""
    total, count = sums
    return divide(total, count).clip(0, 1)


COSINE = MapComparison(
    name="cosine",
    title="Cosine",
    doc="The cosine between two maps of a head, each read as one long vector: 1 for maps that agree up to a factor.",
    not_="Not near 0 for unrelated weights: weights are never negative and tend to share vertical stripes, which raises it. Compare with heads that have nothing in common.",
    citation="Kovaleva et al. 2019, Revealing the Dark Secrets of BERT, sec. 4.3, on maps without padding",
    range=(-1.0, 1.0),
    signed=True,
    similar=True,
    sums=products,
    result=cosine,
)

JS_DIVERGENCE = MapComparison(
    name="js_divergence",
    title="Jensen-Shannon divergence",
    doc="How differently two maps of a head spread each query's attention, as the mean over queries: 0 for equal rows, 1 for rows that share no key.",
    not_="Not defined for signed maps, and not a distance: its square root is one.",
    citation="Lin 1991, Divergence measures based on the Shannon entropy; between heads: Clark et al. 2019, sec. 6 (without their smoothing)",
    unit="bits",
    range=(0.0, 1.0),
    sums=divergences,
    result=js_divergence,
)

COMPARISONS: dict[str, MapComparison] = {comparison.name: comparison for comparison in (COSINE, JS_DIVERGENCE)}
