"""How alike two maps of one head are: between two models, two mechanisms, or two inputs of the same tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..declarations import Declaration
from ..errors import InvalidRequest, Unsupported

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Comparison(Declaration):
    """A number for each two maps [Q, K] of equal shape; `signed` says whether they may be negative, `similar` whether more means more alike."""

    compute: Callable[[Array, Array], float]
    signed: bool = False
    similar: bool = False

    def __call__(self, a: Array, b: Array) -> Array:
        """Maps [..., Q, K] -> [...] in float64. Raises InvalidRequest for different shapes, Unsupported for signed maps where that makes no sense."""
        if a.shape != b.shape or a.ndim < 2:
            raise InvalidRequest(
                "Only maps of the same shape can be compared: the same layers, heads and number of tokens."
            )
        if not self.signed and (np.nanmin(a, initial=0) < 0 or np.nanmin(b, initial=0) < 0):
            raise Unsupported(
                f"{self.title} is defined for maps without negative entries only. Compare signed maps by their cosine."
            )
        result = np.empty(a.shape[:-2])
        for place in np.ndindex(result.shape):
            one, other = a[place].astype(np.float64), b[place].astype(np.float64)
            both = np.isfinite(one).all(-1) & np.isfinite(other).all(-1)  # rows that have a reading in both
            result[place] = self.compute(one[both], other[both])
        return result


def cosine(a: Array, b: Array) -> float:
    """Cosine of the angle between two maps [Q, K] as vectors, -1..1; NaN if one is all zeros."""
    lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(np.clip(np.vdot(a, b) / lengths, -1, 1)) if lengths > 0 else np.nan


def js_divergence(a: Array, b: Array) -> float:
    """Mean over rows of the Jensen-Shannon divergence, base 2, 0..1. Rows are scaled to sum to 1; those of zeros are left out, NaN if all are."""
    sums = a.sum(-1), b.sum(-1)
    defined = (sums[0] > 0) & (sums[1] > 0)
    if not defined.any():
        return np.nan
    p, q = (side[defined] / total[defined, None] for side, total in zip((a, b), sums, strict=True))
    middle = (p + q) / 2
    divergences = sum(
        (side * np.log2(np.divide(side, middle, out=np.ones_like(side), where=side > 0))).sum(-1) / 2 for side in (p, q)
    )
    return float(np.clip(np.mean(divergences), 0, 1))


COSINE = Comparison(
    name="cosine",
    title="Cosine",
    doc="The cosine between two maps of a head, read as one long vector each: 1 for maps that agree but for a factor.",
    not_="Not near 0 for unrelated weights: weights are never negative and tend to share stripes, which raises it. Compare with heads that have nothing in common.",
    citation="Kovaleva et al. 2019, Revealing the Dark Secrets of BERT, sec. 4.3, on maps without padding",
    range=(-1.0, 1.0),
    signed=True,
    similar=True,
    compute=cosine,
)

JS_DIVERGENCE = Comparison(
    name="js_divergence",
    title="Jensen-Shannon divergence",
    doc="How differently two maps of a head spread each query's attention, in the mean over queries: 0 for the same rows, 1 for rows that share no key.",
    not_="Not defined for signed maps, and not a distance: its square root is one.",
    citation="Lin 1991, Divergence measures based on the Shannon entropy; between heads: Clark et al. 2019, sec. 6 (without their smoothing)",
    unit="bits",
    range=(0.0, 1.0),
    compute=js_divergence,
)

COMPARISONS: dict[str, Comparison] = {comparison.name: comparison for comparison in (COSINE, JS_DIVERGENCE)}
