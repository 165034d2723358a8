"""The connection graph of one head: which entries of its map are drawn as edges."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Rule = Literal["top-k", "mass", "mean+std", "value"]


def select(weights: Array, rule: Rule, *, k: int = 3, mass: float = 0.7, value: float = 0.1) -> Array:
    """Indices [E, 2] of (query, key) for a map [Q, K], largest magnitude first; ties in reading order.

    top-k: the k largest of each query. mass: of each query the fewest keys that hold at least `mass` of its total magnitude. mean+std: entries above
    the mean of those that are not 0 plus one standard deviation (JAT's rule). value: entries of at least `value` in magnitude. Zeros are never edges, nor are entries
    without a reading (NaN), which count for nothing.
    """
    weights = np.nan_to_num(weights, nan=0.0)
    counted = weights[weights != 0].astype(
        np.float64
    )  # keys that a query may not see are exactly 0 and no part of its distribution
    level = counted.mean() + counted.std() if rule == "mean+std" and counted.size else 0.0
    magnitude = np.abs(weights)
    if rule == "value":
        chosen = magnitude >= value
    elif rule == "mean+std":
        chosen = weights > level
    else:
        order = np.argsort(-magnitude, axis=1, kind="stable")
        ranked = np.take_along_axis(magnitude, order, 1)
        if rule == "top-k":
            keep = np.broadcast_to(np.arange(weights.shape[1]) < k, ranked.shape)
        else:
            before = np.cumsum(ranked, axis=1, dtype=np.float64) - ranked
            keep = before < mass * ranked.sum(axis=1, keepdims=True, dtype=np.float64)
        chosen = np.zeros(weights.shape, bool)
        np.put_along_axis(chosen, order, keep, 1)
    pairs = np.argwhere(chosen & (magnitude > 0))
    return pairs[np.argsort(-magnitude[pairs[:, 0], pairs[:, 1]], kind="stable")]
