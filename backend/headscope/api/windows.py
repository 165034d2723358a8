"""Windows of the maps of heads, some rows after others: computed from factors or read from a file, so that memory does not grow with the number of tokens.

They are read in the AnyIO thread of a request, and no further once it is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np
from anyio.from_thread import check_cancelled

from ..core.arrays import Array
from ..core.factors import Factors
from ..store import Stored
from ..store.map_file import BLOCK
from .http.grouping import Grouping

# Entries of a map of tokens that are computed at once, and the bytes of memory that each takes.
COMPUTED = 1024 * 1024
COMPUTED_BYTES = 24
# More bytes of each where tokens are merged, in float64.
MERGED_BYTES = 16


@dataclass(frozen=True)
class Window:
    """Rows and columns of a merged map, of which `computed` entries of the map of tokens are in memory at once, or one row of it."""

    grouping: Grouping
    queries: slice
    keys: slice
    computed: int = COMPUTED

    def needs(self, each: int = COMPUTED_BYTES) -> int:
        """Return the bytes of memory that its rows take, with so many for each entry that is computed at once."""
        _, rows, columns = self.grouping.cut(self.queries, self.keys)
        each += 0 if self.grouping.queries is None else MERGED_BYTES
        return min(_length(rows) * _length(columns), self.computed) * each

    def parts(self, unit: int = 1) -> Iterator[Window]:
        """Yield its rows in multiples of `unit`, as many as have no more tokens than are computed at once, or one unit."""
        most, count = self._tokens_at_once(), _length(self.queries)
        groups = self.grouping.queries
        ends = np.cumsum([1] * count if groups is None else groups[self.queries])
        start = done = 0
        while start < count:
            check_cancelled()
            fitting = int(np.searchsorted(ends, done + most, "right")) - start
            stop = min(start + max(unit, fitting // unit * unit), count)
            yield replace(self, queries=slice(self.queries.start + start, self.queries.start + stop))
            start, done = stop, int(ends[stop - 1])

    def read(self, factors: Factors) -> Iterator[tuple[int, Array]]:
        """Yield the window of the map of a head, some rows after others: the number of the first, and the rows."""
        most = self._tokens_at_once()
        for part in self.parts():
            yield part.queries.start, _merge(factors, most, *self.grouping.cut(part.queries, part.keys))

    def _tokens_at_once(self) -> int:
        """Return how many rows of the map of tokens are computed at once."""
        return max(1, self.computed // max(1, _length(self.grouping.cut(self.queries, self.keys)[2])))


def _merge(factors: Factors, most: int, grouping: Grouping, rows: slice, columns: slice) -> Array:
    """Return rows of a merged map. One of more tokens than `most` is the mean of its pieces."""
    if _length(rows) <= most:
        return grouping.apply(factors.tile(0, rows, columns))
    total: Array = np.zeros(())
    for low in range(rows.start, rows.stop, most):
        piece = slice(low, min(low + most, rows.stop))
        one = Grouping([_length(piece)], grouping.keys)
        total = total + one.apply(factors.tile(0, piece, columns).astype(np.float64)) * _length(piece)
    return (total / _length(rows)).astype(np.float32)


def _length(part: slice) -> int:
    count: int = part.stop - part.start
    return count


def has_windows(stored: Stored, lens: str) -> bool:
    """Return whether windows of heads are computed or read; maps as small as a block are read whole."""
    *_, queries, keys = stored.document["shapes"][lens]
    return stored.is_factored(lens) or queries * keys * 4 > BLOCK


@contextmanager
def open_heads(stored: Stored, lens: str, layers: slice, heads: slice) -> Iterator[Iterator[Factors]]:
    """Open what a result keeps of heads, to read windows of each: of a large map no more than these, if the store is on this machine. Raises Corrupt."""
    opened = stored.open_map(lens, layers, heads) if has_windows(stored, lens) else None
    if opened is None:
        yield stored.factors(lens, layers, heads)
        return
    with closing(opened):
        yield opened.heads()


def held_bytes(stored: Stored, lens: str, layers: slice, heads: slice) -> int:
    """Return the bytes of heads that `open_heads` has in memory at a time."""
    _, count, queries, keys = stored.document["shapes"][lens]
    if not stored.is_factored(lens):
        return 0 if has_windows(stored, lens) and not stored.remote else queries * keys * 4
    sizes = np.reshape(stored.manifest.sizes[lens], (-1, count))[layers, heads]
    return min(int(sizes.sum()), max(BLOCK, int(sizes.max())))
