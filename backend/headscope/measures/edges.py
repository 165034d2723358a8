"""The connection graph of one head: the entries of its map that are drawn as edges."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..core.arrays import Array

Rule = Literal["top-k", "mass", "mean+std", "value"]


def select(weights: Array, rule: Rule, *, k: int = 3, mass: float = 0.7, value: float = 0.1) -> Array:
    """Return indices [E, 2] of (query, key) for a map [Q, K], largest magnitude first; ties in reading order.

    top-k: the k largest entries of each query. mass: for each query, the smallest number of keys that hold at least `mass` of its total magnitude. mean+std:
    entries above mean plus standard deviation of the entries that are not 0 (JAT's rule). value: entries of at least `value` in magnitude. Zeros are never
    edges. Entries without a reading (NaN) are ignored.
    """
    weights = np.nan_to_num(weights, nan=0.0)
    counted = weights[weights != 0].astype(np.float64)  # masked keys are exactly 0 and not part of the distribution
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
