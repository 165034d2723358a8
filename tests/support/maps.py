"""Slow references for numbers of maps."""

from __future__ import annotations

import math

import numpy as np


def slow_sinks(one: np.ndarray, causal: bool, allowed: np.ndarray | None = None) -> list[int]:
    """The sinks of a map [Q, K], key by key and query by query, in float64. `allowed` [Q, K]: which keys a query sees, if not all or those up to itself."""
    if allowed is None:
        allowed = np.tri(*one.shape, dtype=bool) if causal else np.ones(one.shape, bool)
    found, read = [], [q for q in range(len(one)) if not any(math.isnan(value) for value in one[q].tolist())]
    for key in range(one.shape[1]):
        sees = [q for q in range(len(one)) if allowed[q, key]]
        received = math.fsum(abs(float(one[q, key])) for q in sees if q in read)
        given = math.fsum(abs(value) for q in sees if q in read for value in one[q].tolist())
        if len(sees) >= allowed.sum(0).max() / 2 and received > 0.3 * given:
            found.append(key)
    return found
