"""Heads of a map file that are sent or read from the file itself, a piece at a time, once they are verified.

Verifying takes longer than sending, so heads of a file that does not change are verified once in VERIFIED_SECONDS. The file's inode, time of modification and
size are compared before every piece.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from cachetools import TTLCache

from ..core.arrays import Array
from ..core.factors import EVERY, Factors
from ..core.streams import PIECE
from .map_file import Corrupt, Shape, header

# Damage that leaves no trace in a file's status is found after this time (s).
VERIFIED_SECONDS = 300.0
MAX_FILES = 1_000
# The digest of a result and one of its lenses.
Name = tuple[str, str]
# A file by its name, inode, time of modification (ns) and size.
FileKey = tuple[str, str, int, int, int]


class VerifiedHeads:
    """The heads of map files, by number, that were verified within VERIFIED_SECONDS. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heads: TTLCache[FileKey, set[int]] = TTLCache(MAX_FILES, VERIFIED_SECONDS)

    def missing(self, key: FileKey, heads: Sequence[int]) -> list[int]:
        """Return which of these heads have to be verified."""
        with self._lock:
            known = self._heads.get(key, set())
            return [head for head in heads if head not in known]

    def add(self, key: FileKey, heads: Sequence[int]) -> None:
        """Remember that these heads were verified; all of a file are forgotten at once, VERIFIED_SECONDS after the first."""
        with self._lock:
            known = self._heads.get(key)
            if known is None:
                self._heads[key] = set(heads)
            else:
                known.update(heads)


@dataclass(frozen=True)
class OpenHead(Factors):
    """The map of a head in an open file, of which only the rows of a window are read, PIECE bytes at a time. Raises Corrupt if the file has changed.

    `read` returns bytes of the file by offset and length; the map begins at `start`.
    """

    read: Callable[[int, int], bytes]
    start: int
    queries: int
    keys: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, self.queries, self.keys

    def head(self, head: int) -> OpenHead:
        return self

    def exact(self, head: int, rows: Array, columns: Array) -> Array:
        return np.array([self._rows(row, row + 1)[0, columns] for row in rows.tolist()], np.float64)

    def tile(self, head: int, rows: slice = EVERY, columns: slice = EVERY, out: Array | None = None) -> Array:
        first, last, _ = rows.indices(self.queries)
        window = np.empty((last - first, len(range(self.keys)[columns])), np.float32) if out is None else out
        step = max(1, PIECE // (4 * self.keys))
        for low in range(first, last, step):
            high = min(low + step, last)
            window[low - first : high - first] = self._rows(low, high)[:, columns]
        return window

    def _rows(self, first: int, last: int) -> Array:
        width = 4 * self.keys
        data = self.read(self.start + first * width, (last - first) * width)
        return np.frombuffer(data, np.float32).reshape(-1, self.keys)


class OpenMap:
    """Some layers and heads of an open map file as a map file of their own. Verifies them when it is made. Raises Corrupt."""

    def __init__(
        self,
        file: BinaryIO,
        shape: Shape,
        layers: slice,
        heads: slice,
        digests: Sequence[str],
        name: Name,
        verified: VerifiedHeads,
    ) -> None:
        self._file, self._sides, self._size = file, shape[2:], shape[2] * shape[3] * 4  # bytes of a head
        chosen_layers, chosen_heads = range(shape[0])[layers], range(shape[1])[heads]
        self._header = header((len(chosen_layers), len(chosen_heads), *shape[2:]))
        self._first, self._heads_of_layer = len(header(shape)), chosen_heads
        self._rows = [layer * shape[1] for layer in chosen_layers]
        self._status = self._read_status()
        key = (*name, *self._status)
        numbers = [row + head for row in self._rows for head in chosen_heads]
        missing = verified.missing(key, numbers)
        self._verify(missing, digests)
        verified.add(key, missing)

    @property
    def length(self) -> int:
        """Bytes of the file."""
        return len(self._header) + len(self._rows) * len(self._heads_of_layer) * self._size

    def pieces(self) -> Iterator[bytes]:
        """Yield the file, at most PIECE bytes at a time, and close it. Raises Corrupt if the file has changed since it was opened."""
        with self._file:
            yield self._header
            for row in self._rows:
                start = self._first + (row + self._heads_of_layer.start) * self._size
                stop = start + len(self._heads_of_layer) * self._size
                for low in range(start, stop, PIECE):
                    yield self._read(low, min(PIECE, stop - low))

    def heads(self) -> Iterator[Factors]:
        """Yield the heads, to be read until the file is closed."""
        for row in self._rows:
            for head in self._heads_of_layer:
                yield OpenHead(self._read, self._first + (row + head) * self._size, *self._sides)

    def close(self) -> None:
        """Close the file, unless all pieces were read, which closes it."""
        self._file.close()

    def _read(self, start: int, length: int) -> bytes:
        data = os.pread(self._file.fileno(), length, start)
        if len(data) != length or self._read_status() != self._status:
            raise Corrupt
        return data

    def _verify(self, numbers: Sequence[int], digests: Sequence[str]) -> None:
        for number in numbers:
            start, digest = self._first + number * self._size, hashlib.sha256()
            for low in range(start, start + self._size, PIECE):
                digest.update(self._read(low, min(PIECE, start + self._size - low)))
            if digest.hexdigest() != digests[number]:
                raise Corrupt

    def _read_status(self) -> tuple[int, int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_ino, status.st_mtime_ns, status.st_size
