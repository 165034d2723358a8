"""Numpy arrays of any dtype, and division that leaves undefined results undefined."""

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
