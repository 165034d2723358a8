"""Numpy arrays of any dtype, as JSON, and division that leaves undefined results undefined."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def divide(parts: Array, whole: Array) -> Array:
    """Return parts / whole in float64, shaped like `parts`; NaN where the whole is 0."""
    above = np.asarray(parts, float)
    below = np.broadcast_to(np.asarray(whole, float), above.shape)
    found: Array = np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)
    return found


def to_lists(array: Array) -> Any:
    """Return nested lists for JSON, with None for NaN and infinity."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        values = array.astype(object)
        values[~np.isfinite(array)] = None
        return values.tolist()
    return array.tolist()
