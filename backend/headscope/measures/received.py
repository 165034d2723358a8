"""How much attention keys receive, and which keys of a head are sinks."""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array

# A sink receives more than this share of the attention of the queries that can see it; the epsilon of the measure `sink`.
SINK = 0.3


# How many tokens before and after itself a query sees; None where it sees all keys.
Window = tuple[int, int] | None


def window_of(counts: Array, keys: int) -> Window:
    """Return the window of a layer from the number of keys that each of its queries sees, [Q].

    Causal masks, sliding windows and windows to both sides are windows. Other causal masks, such as those of chunks, count as causal, and any other mask as none.
    """
    queries = len(counts)
    if queries != keys or (counts == keys).all():
        return None
    before, after = int(counts[-1]) - 1, int(counts[0]) - 1
    ahead = np.arange(queries)[::-1]  # tokens after each query
    if (counts == np.minimum(np.arange(queries), before) + np.minimum(ahead, after) + 1).all():
        return before, after
    return (queries - 1, 0) if (counts <= np.arange(1, queries + 1)).all() else None


def widened(window: Window, queries: int) -> Window:
    """Return the window of maps of whole layers, which reach beyond that of their layer through the layers before."""
    return (queries - 1, 0) if window is not None and window[1] == 0 else None


def received_and_given(maps: Array) -> tuple[Array, Array]:
    """Return what keys receive of some queries, [..., K], and what each of these gives to all keys, [..., Q]: magnitudes, without rows that have no reading."""
    magnitude = np.abs(maps.astype(np.float64))
    magnitude[np.isnan(magnitude).any(-1)] = 0
    return magnitude.sum(-2), magnitude.sum(-1)


def sinks_of(received: Array, given: Array, window: Window) -> Array:
    """Return which keys are sinks, [..., K] (bool), from what keys receive, [..., K], and queries give, [..., Q].

    These are keys that receive more than SINK of the attention of the queries that can see them. `window` is that of the layer. Keys seen by fewer than half as
    many queries as others are never sinks, because the last tokens of any causal map attend mostly to themselves.
    """
    queries, keys = given.shape[-1], received.shape[-1]
    if window is None:
        return np.asarray(received > SINK * given.sum(-1, keepdims=True))
    before, after = window
    # The queries that see a key, as [first, last), and what they give to all keys.
    first, last = (np.clip(np.arange(keys) + shift, 0, queries) for shift in (-after, before + 1))
    sums = np.concatenate([np.zeros((*given.shape[:-1], 1)), given.cumsum(-1)], -1)
    seen = sums[..., last] - sums[..., first]
    return np.asarray((received > SINK * seen) & (2 * (last - first) >= (last - first).max()))
