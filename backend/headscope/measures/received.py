"""How much attention keys receive, and which keys of a head are sinks."""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array

# A sink receives more than this share of the attention of the queries that can see it; the epsilon of the measure `sink`.
SINK = 0.3


def find_sinks(maps: Array, *, causal: bool) -> Array:
    """Return which keys are sinks, [..., Q, K] -> [..., K] (bool): those that receive more than SINK of the attention of the queries that can see them.

    Attention is counted by magnitude, and rows without a reading (NaN) are ignored. In a causal map a key is seen by its own query and the later ones; keys seen
    by fewer than half of the queries are never sinks, because the last tokens of any causal map attend mostly to themselves.
    """
    magnitude = np.abs(maps.astype(np.float64))
    magnitude[np.isnan(magnitude).any(-1)] = 0
    queries, keys = magnitude.shape[-2:]
    received, given = magnitude.sum(-2), magnitude.sum(-1)  # [..., K], [..., Q]
    if not causal:
        return np.asarray(received > SINK * given.sum(-1, keepdims=True))
    # What the queries from a key on give to all keys.
    seen = np.flip(np.flip(given, -1).cumsum(-1), -1)[..., :keys]
    return np.asarray((received > SINK * seen) & (2 * np.arange(keys) <= queries))
