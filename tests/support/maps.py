"""Slow references for numbers of maps."""

from __future__ import annotations

import math

import numpy as np


def slow_sinks(one: np.ndarray, causal: bool) -> list[int]:
    """The sinks of a map [Q, K], key by key and query by query, in float64."""
    found, read = [], [q for q in range(len(one)) if not any(math.isnan(value) for value in one[q].tolist())]
    for key in range(one.shape[1]):
        sees = [q for q in range(len(one)) if not causal or key <= q]
        received = math.fsum(abs(float(one[q, key])) for q in sees if q in read)
        given = math.fsum(abs(value) for q in sees if q in read for value in one[q].tolist())
        if len(sees) >= len(one) / 2 and received > 0.3 * given:
            found.append(key)
    return found
