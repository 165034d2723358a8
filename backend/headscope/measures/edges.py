"""The connection graph of one head: the entries of its map that are drawn as edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..core.arrays import Array

Rule = Literal["top-k", "mass", "mean+std", "value"]
# Some rows of a map after others: the number of the first, and the rows [R, K].
RowBlocks = Callable[[], Iterator[tuple[int, Array]]]


@dataclass(frozen=True)
class StrongestEdges:
    """The strongest edges of a map, largest magnitude first and ties in reading order: `pairs` [E, 2] of (query, key) and `weights` [E]; and how many there are."""

    pairs: Array
    weights: Array
    total: int


def find_strongest(
    blocks: RowBlocks,
    rule: Rule,
    limit: int,
    *,
    k: int = 3,
    mass: float = 0.7,
    value: float = 0.1,
    unmasked: bool = False,
) -> StrongestEdges:
    """Find the `limit` strongest edges of a map that comes in rows, which are read twice for the rule mean+std.

    top-k: the k largest entries of each query. mass: for each query, the smallest number of keys that hold at least `mass` of its total magnitude. mean+std:
    entries above mean plus standard deviation of the entries that are not 0 (JAT's rule). value: entries of at least `value` in magnitude. Zeros are never
    edges. Entries without a reading (NaN) are ignored. What a token gives to itself counts like any other entry, by every rule.

    Under mean+std a zero is taken for a key that the mask hides. With `unmasked`, for lenses that show ties, every query sees every key, and zeros count.
    """
    level = _level(blocks, unmasked) if rule == "mean+std" else 0.0
    found, total = StrongestEdges(np.zeros((0, 2), int), np.zeros(0, np.float32), 0), 0
    for first, rows in blocks():
        rows = np.nan_to_num(rows, nan=0.0)
        magnitude = np.abs(rows)
        if rule == "value":
            chosen = magnitude >= value
        elif rule == "mean+std":
            chosen = rows > level
        else:
            chosen = _largest(magnitude, _counts(magnitude, rule, k, mass))
        pairs = np.argwhere(chosen & (magnitude > 0))
        weights = np.concatenate([found.weights, rows[pairs[:, 0], pairs[:, 1]]])
        pairs[:, 0] += first
        pairs, total = np.concatenate([found.pairs, pairs]), total + len(pairs)
        order = np.argsort(-np.abs(weights), kind="stable")[:limit]
        found = StrongestEdges(pairs[order], weights[order], total)
    return found


def select(
    weights: Array, rule: Rule, *, k: int = 3, mass: float = 0.7, value: float = 0.1, unmasked: bool = False
) -> Array:
    """Return indices [E, 2] of (query, key) of all edges of a map [Q, K], as `find_strongest` does."""
    blocks = [(0, weights)]
    found = find_strongest(lambda: iter(blocks), rule, weights.size, k=k, mass=mass, value=value, unmasked=unmasked)
    return found.pairs


def _level(blocks: RowBlocks, unmasked: bool) -> float:
    """Return mean plus standard deviation of the entries that are not 0, or of all: masked keys are exactly 0 and not part of the distribution."""
    count, total, squares, origin = 0, 0.0, 0.0, None
    for _, rows in blocks():
        counted = rows[((rows != 0) | unmasked) & ~np.isnan(rows)].astype(np.float64)
        if counted.size:
            origin = counted[0] if origin is None else origin
            counted -= origin  # deviations of equal entries are then exactly 0
            count, total, squares = count + counted.size, total + counted.sum(), squares + np.square(counted).sum()
    if origin is None:
        return 0.0
    return float(origin + total / count + np.sqrt(max(0.0, squares / count - (total / count) ** 2)))


def _counts(magnitude: Array, rule: Rule, k: int, mass: float) -> Array:
    """Return how many of its largest entries each row [R, K] keeps, [R]."""
    if rule == "top-k":
        return np.full(len(magnitude), min(k, magnitude.shape[1]))
    ranked = np.sort(magnitude, axis=1)[:, ::-1]
    before = np.cumsum(ranked, axis=1, dtype=np.float64) - ranked
    counts: Array = (before < mass * ranked.sum(axis=1, keepdims=True, dtype=np.float64)).sum(1)
    return counts


def _largest(magnitude: Array, counts: Array) -> Array:
    """Return where the `counts` [R] largest entries of each row [R, K] are (bool); of equal ones the first."""
    ranked = np.sort(magnitude, axis=1)
    last = ranked[np.arange(len(counts)), (magnitude.shape[1] - counts).clip(0, magnitude.shape[1] - 1)][:, None]
    above, equal = magnitude > last, magnitude == last
    left = counts - above.sum(1)
    chosen: Array = above | (equal & (np.cumsum(equal, axis=1) <= left[:, None]))
    return chosen & (counts > 0)[:, None]
