"""A part of a data set, drawn by a seed: the same rows each time, in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import compress

import numpy as np

from .dataset import Row


def choose(rows: Iterable[Row], limit: int | None, seed: int = 0) -> Iterable[Row]:
    """`limit` rows drawn without replacement, in the order of the file; all of them without a limit.

    Rows are gone through twice, and none is kept. Each has a rank that its number and the seed decide, and the lowest ranks are drawn: a smaller limit gives
    some of the rows that a larger one gives.
    """
    if limit is None:
        return rows
    ranks = np.fromiter((_rank(row.number, seed) for row in rows), np.uint64)
    drawn = np.zeros(len(ranks), bool)
    drawn[np.argsort(ranks, kind="stable")[:limit]] = True
    return compress(rows, drawn)


def _rank(number: int, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest(), "big")
