"""The maps of one lens as a safetensors file that is written block by block and read head by head.

The file has one tensor, `map` float32 [L, H, Q, K]. Each head has its own SHA-256, so that a slice can be verified without reading the rest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..errors import StorageFull

Shape = tuple[int, int, int, int]
# An offset in a file, and the buffer for the bytes from there on.
Piece = tuple[int, memoryview]
Fill = Callable[[list[Piece]], None]
# The bytes of a head, where they are in memory.
Pieces = Sequence[memoryview]
# Bytes of heads that are read at once when a whole map is read.
BLOCK = 16 * 1024 * 1024
# Blocks up to this many bytes are hashed faster than a thread starts.
SMALL = 256 * 1024
# Pieces that the system writes at once, on every platform.
AT_ONCE = 1024


class MapPart(NamedTuple):
    """Heads of a layer, both by index, from `head` on: `values` [H', R, K] float32 are their rows from `row` on, all rows if there are several heads."""

    layer: int
    head: int
    row: int
    values: Array


class Corrupt(Exception):
    """The stored data is not what was written."""


@lru_cache(256)
def header(shape: Shape) -> bytes:
    """Return the safetensors header of such a file."""
    return safetensors_header(
        {"map": {"dtype": "F32", "shape": list(shape), "data_offsets": [0, math.prod(shape) * 4]}}
    )


def safetensors_header(entries: Mapping[str, Any]) -> bytes:
    """Return the header of a safetensors document, padded to align the data."""
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


class MapWriter:
    """A writer of map files, block by block, and of files of factors, head by head.

    Writing blocks the computation: in parallel, it would take a core from threads that wait for each other, which is slower. Only hashing runs in parallel.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hasher: ThreadPoolExecutor | None = None  # small blocks need none
        self._files: dict[str, Any] = {}
        self.digests: dict[str, list[str]] = {}
        self.sizes: dict[str, list[int]] = {}  # of the heads of files of factors

    def open(self, shapes: dict[str, Shape], factored: Collection[str] = ()) -> None:
        """Create a file per lens, or restart them: files of factors for the `factored` ones. Raises StorageFull."""
        self._close_files()
        self.sizes = {lens: [] for lens in factored}
        self.digests = {lens: [] for lens in shapes}
        with storing():
            for lens, shape in shapes.items():
                self._files[lens] = (self._folder / file_of(lens, self.sizes)).open("wb", buffering=0)
                if lens not in self.sizes:
                    self._files[lens].write(header(shape))

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """Append a block [h, Q, K]; blocks must come in the order of the file. Raises StorageFull."""
        self._append(lens, [[bytes_of(head)] for head in np.ascontiguousarray(block, np.float32)])

    def write_documents(self, lens: str, heads: Sequence[Pieces]) -> None:
        """Append the documents of heads to a file of factors, in its order. Raises StorageFull."""
        self.sizes[lens] += map(_size, heads)
        self._append(lens, heads)

    def _append(self, lens: str, heads: Sequence[Pieces]) -> None:
        """Append heads to a file, from the memory where they are."""
        if sum(map(_size, heads)) > SMALL:
            self._hasher = self._hasher or ThreadPoolExecutor(1, thread_name_prefix="hasher")
            digests = self._hasher.submit(_digests, heads).result
        else:
            digests = partial(_digests, heads)
        with storing():
            _write_all(self._files[lens].fileno(), [piece for head in heads for piece in head])
        self.digests[lens] += digests()

    def close(self) -> None:
        """Close the files."""
        if self._hasher:
            self._hasher.shutdown()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()


def file_of(lens: str, factored: Collection[str]) -> str:
    """Return the name of a lens' file."""
    return f"{lens}.factors" if lens in factored else f"{lens}.safetensors"


def bytes_of(values: Array) -> memoryview:
    """Return the memory of a contiguous array."""
    return values.reshape(-1).view(np.uint8).data


def _size(head: Pieces) -> int:
    return sum(piece.nbytes for piece in head)


def _digests(heads: Sequence[Pieces]) -> list[str]:
    digests = []
    for head in heads:
        digest = hashlib.sha256()
        for piece in head:
            digest.update(piece)
        digests.append(digest.hexdigest())
    return digests


@contextmanager
def storing() -> Iterator[None]:
    """Raise StorageFull for any failure to write a file."""
    try:
        yield
    except OSError as error:
        raise StorageFull(
            "The result could not be written to disk. Free some disk space, or lower HEADSCOPE_QUOTA_BYTES."
        ) from error


def _write_all(file: int, pieces: Sequence[memoryview]) -> None:
    """Write all pieces to a file descriptor: a write may write only a part."""
    for low in range(0, len(pieces), AT_ONCE):
        left = [piece for piece in pieces[low : low + AT_ONCE] if piece]
        while left:
            written = os.writev(file, left)
            while left and written >= left[0].nbytes:
                written -= left.pop(0).nbytes
            if left:
                left[0] = left[0][written:]


def blocks(shape: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Yield slices of layers and heads, in order: heads of one layer of BLOCK bytes together, or a single head."""
    heads = max(1, BLOCK // (4 * shape[2] * shape[3]))
    for layer in range(shape[0]):
        for head in range(0, shape[1], heads):
            yield slice(layer, layer + 1), slice(head, min(head + heads, shape[1]))


def read_heads(fill: Fill, shape: Shape, layers: slice, heads: slice, digests: list[str]) -> memoryview:
    """Return some layers and heads of a map file as a map file of their own, verified. `fill` reads from the whole file. Raises Corrupt."""
    size = shape[2] * shape[3] * 4
    chosen_layers, chosen_heads = range(shape[0])[layers], range(shape[1])[heads]
    run = len(chosen_heads) * size  # bytes of a layer's chosen heads, which are adjacent
    file, data = empty_file((len(chosen_layers), len(chosen_heads), *shape[2:]))
    first = len(header(shape)) + chosen_heads.start * size
    offsets = [first + layer * shape[1] * size for layer in chosen_layers]
    fill([(offset, data[place * run :][:run]) for place, offset in enumerate(offsets)])
    expected = [digests[layer * shape[1] + head] for layer in chosen_layers for head in chosen_heads]
    for place, digest in enumerate(expected):
        if hashlib.sha256(data[place * size :][:size]).hexdigest() != digest:
            raise Corrupt
    return file


def empty_file(shape: Shape) -> tuple[memoryview, memoryview]:
    """Return a map file to be filled, and its part for the maps."""
    start = header(shape)
    file = np.empty(len(start) + math.prod(shape) * 4, np.uint8).data
    file[: len(start)] = start
    return file, file[len(start) :]


def values_of(file: memoryview) -> Array:
    """Return the map [L, H, Q, K] of a file from read_heads."""
    length = struct.unpack_from("<Q", file)[0]
    shape = json.loads(bytes(file[8 : 8 + length]))["map"]["shape"]
    return np.frombuffer(file, np.float32, offset=8 + length).reshape(shape)
