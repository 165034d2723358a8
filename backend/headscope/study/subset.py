"""A part of a data set, drawn by a seed: the same rows each time, in their order."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable

from .dataset import Row


def choose(rows: Iterable[Row], limit: int | None, seed: int = 0) -> Iterable[Row]:
    """`limit` rows drawn without replacement, in the order of the file; all of them without a limit.

    Rows are gone through once and only those drawn are kept. Each has a rank that its number and the seed decide, and the lowest ranks are drawn: a
    smaller limit gives some of the rows that a larger one gives.
    """
    if limit is None:
        return rows
    drawn: list[tuple[int, int, Row]] = []  # a heap with the highest rank on top
    for row in rows:
        rank = _rank(row.number, seed)
        if len(drawn) < limit:
            heapq.heappush(drawn, (-rank, -row.number, row))
        elif drawn and rank < -drawn[0][0]:
            heapq.heapreplace(drawn, (-rank, -row.number, row))
    return sorted((row for *_, row in drawn), key=lambda row: row.number)


def _rank(number: int, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest(), "big")
