"""Numpy arrays of any dtype, as JSON, their largest entries, and division that leaves undefined results undefined."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidRequest

Array = NDArray[Any]


def divide(parts: Array, whole: Array) -> Array:
    """Return parts / whole in float64, shaped like `parts`; NaN where the whole is 0."""
    above = np.asarray(parts, float)
    below = np.broadcast_to(np.asarray(whole, float), above.shape)
    found: Array = np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)
    return found


def check_share(value: float, name: str) -> None:
    """Raise InvalidRequest unless an argument is a number from 0 to 1."""
    if not isinstance(value, (int, float, np.number)) or not 0 <= value <= 1:
        raise InvalidRequest(f"{name} must be a number from 0 to 1, such as 0.95.", pointer=f"/{name}")


def largest_places(values: Array, count: int) -> list[tuple[int, ...]]:
    """Return the places of the `count` largest values, or of all that are numbers, largest first. Raises InvalidRequest for any other count."""
    if not isinstance(count, (int, np.integer)) or count < 0:
        raise InvalidRequest("count must be a whole number, 0 or larger.", pointer="/count")
    order = np.argsort(-values, axis=None, kind="stable")[: min(count, np.count_nonzero(~np.isnan(values)))]
    places = np.unravel_index(order, values.shape)
    return list(zip(*(axis.tolist() for axis in places), strict=True))


def to_lists(array: Array) -> Any:
    """Return nested lists for JSON, with None for NaN and infinity."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        values = array.astype(object)
        values[~np.isfinite(array)] = None
        return values.tolist()
    return array.tolist()
