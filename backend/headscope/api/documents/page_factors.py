"""What a page keeps of a head of a long text: its factors, two bytes per number.

The numbers of a column are multiples of a scale, from -32,767 to 32,767 of it. Float16 takes as many bytes, but has eleven significant bits whatever the size of
a number, while a score is a sum in which the largest numbers count: with SmolLM2, weights from float16 were off by up to ten times as much.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from safetensors.numpy import save

from ...core.arrays import Array
from ...core.factors import Factors, Remainder
from ...store.factor_file import join, split

# Matrices [1, Q or K, D] that are rounded.
ROUNDED = frozenset({"query", "key", "coefficients", "basis"})
STEPS = 32_767
# Largest error of a rounded head, as a share of its largest entry; like that of maps of bytes. Other heads are kept in float32.
LARGEST_ERROR = 2e-3
# By how much the maps of factors in float32 may differ from those of the model.
SINGLE_ERROR = 1e-5
# Entries of a map from which its errors are estimated, in evenly spaced rows; they are taken to be twice the largest ones found.
CHECKED = 2 * 1024 * 1024
MARGIN = 2.0


def pack(factors: Factors) -> bytes:
    """Return a safetensors document like that of a file of factors: rounded tensors are int16 with `<name>.scale` float32 [D], and `error` [2] estimates the errors.

    These are the error of an entry, including SINGLE_ERROR, and the sum of the errors of a row without it, which bounds that of a sum over any keys.
    """
    described, tensors = split(factors)
    exact = {name: _narrow(name, values) for name, values in tensors.items()}
    steps, scales = {}, {}
    for name in exact:
        if _last(name) in ROUNDED:
            steps[name], scales[name] = _round(exact[name])
    rounded = _keep_zeros(described, {**exact, **{name: steps[name] * scales[name] for name in steps}}, factors)
    error, of_row, largest = _compare(join(described, rounded), factors)
    stored = {**rounded, **steps, **{f"{name}.scale": scale for name, scale in scales.items()}}
    if error > LARGEST_ERROR * largest:
        stored, error, of_row = _keep_zeros(described, exact, factors), 0.0, 0.0
    return _write(described, {**stored, "error": np.array([error + SINGLE_ERROR, of_row], np.float32)})


def _write(described: Mapping[str, object], tensors: Mapping[str, Array]) -> bytes:
    document: bytes = save(dict(tensors), {"head": json.dumps(described)})
    return document


def _last(name: str) -> str:
    """Return the name of a tensor in its own part."""
    return name.rpartition(".")[2]


def _narrow(name: str, values: Array) -> Array:
    """Return maps in float16, unless their entries are too large, and anything in float64 in float32."""
    if _last(name) == "map" and np.nanmax(np.abs(values), initial=0) <= np.finfo(np.float16).max:
        return values.astype(np.float16)
    return values.astype(np.float32) if values.dtype == np.float64 else values


def _round(values: Array) -> tuple[Array, Array]:
    """Return a matrix [1, N, D] as multiples of a scale [D]: int16, and float32."""
    scale = np.abs(values).max((0, 1), initial=0).astype(np.float32) / np.float32(STEPS)  # [D]
    scale[scale == 0] = 1
    return np.rint(values / scale).astype(np.int16), scale


def _keep_zeros(described: Mapping[str, Any], tensors: Mapping[str, Array], factors: Factors) -> dict[str, Array]:
    """Return the tensors of a remainder with rows that are exactly 0 kept as the rounded map has them, so that their difference is 0 after rounding, too."""
    if not isinstance(factors, Remainder):
        return dict(tensors)
    first, rounded = factors.part.first.astype(np.float32), join(described, tensors)
    places = np.arange(first.shape[1])
    nothing = ~factors.exact(0, places, places).any(1)
    first[0, nothing] = cast("Remainder", rounded).whole.exact(0, places[nothing], places)
    return {**tensors, "part.first": first}


def _compare(rounded: Factors, exact: Factors) -> tuple[float, float, float]:
    """Return bounds of the error of an entry and of all in a row, estimated from some rows of a head, and the largest of their entries."""
    _, queries, keys = exact.shape
    rows = np.linspace(0, queries - 1, min(queries, max(1, CHECKED // keys))).astype(int)
    error = of_row = largest = 0.0
    for some in np.array_split(rows, -(-len(rows) * keys // (CHECKED // 4))):
        expected = exact.exact(0, some, np.arange(keys))
        found = rounded.exact(0, some, np.arange(keys))
        errors = np.nan_to_num(np.abs(found - expected), nan=0.0)  # of rows without a reading
        error, of_row = max(error, float(errors.max())), max(of_row, float(errors.sum(1).max()))
        largest = max(largest, float(np.nanmax(np.abs(expected), initial=0)))
    return MARGIN * error, MARGIN * of_row, largest
