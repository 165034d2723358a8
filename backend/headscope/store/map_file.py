"""One lens' maps as a safetensors file that is written block by block and read head by head.

The file holds one tensor, `map` float32 [L, H, Q, K]. Each head has a SHA-256 of its own, so that a slice can be verified without reading the rest.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StorageFull

Array = NDArray[Any]
Shape = tuple[int, int, int, int]
# A place in a file, and the room that the bytes from there on fill.
Piece = tuple[int, memoryview]
Fill = Callable[[list[Piece]], None]
# Bytes of heads that are read together where a whole map is read.
BLOCK = 16 * 1024 * 1024


class Corrupt(Exception):
    """What is on disk is not what was written."""


@lru_cache(256)
def header(shape: Shape) -> bytes:
    """The safetensors header of such a file, padded so that the data is aligned."""
    size = math.prod(shape) * 4
    text = json.dumps({"map": {"dtype": "F32", "shape": list(shape), "data_offsets": [0, size]}}, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text.encode()


class MapWriter:
    """Writes map files block by block, as a Sink of the pipeline.

    The arithmetic waits meanwhile: beside it, writing would take a core away from threads that wait for each other, and come out slower. Only hashing
    goes on beside writing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="hasher")
        self._files: dict[str, Any] = {}
        self.digests: dict[str, list[str]] = {}

    def open(self, shapes: dict[str, Shape]) -> None:
        """Start a file per lens, also anew. Raises StorageFull."""
        self._close_files()
        with storing():
            for lens, shape in shapes.items():
                self._files[lens] = (self._folder / f"{lens}.safetensors").open("wb", buffering=0)
                self._files[lens].write(header(shape))
                self.digests[lens] = []

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """Append a block [h, Q, K]; blocks come in the file's order. Raises StorageFull."""
        block = np.ascontiguousarray(block, np.float32)
        digests = self._hasher.submit(lambda: [hashlib.sha256(one.data).hexdigest() for one in block])
        with storing():
            _write_all(self._files[lens], block.data.cast("B"))
        self.digests[lens] += digests.result()

    def close(self) -> None:
        """Close the files."""
        self._hasher.shutdown()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()


@contextmanager
def storing() -> Iterator[None]:
    """What fails in writing files is StorageFull."""
    try:
        yield
    except OSError as error:
        raise StorageFull(
            "The result could not be written to disk. Free some room, or lower HEADSCOPE_QUOTA_BYTES."
        ) from error


def _write_all(file: Any, data: memoryview) -> None:
    """All of it: an unbuffered write may take only a part."""
    while data:
        data = data[file.write(data) :]


def blocks(shape: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """Places of layers and heads, in order: heads of one layer that take BLOCK bytes together, or one head."""
    heads = max(1, BLOCK // (4 * shape[2] * shape[3]))
    for layer in range(shape[0]):
        for head in range(0, shape[1], heads):
            yield slice(layer, layer + 1), slice(head, min(head + heads, shape[1]))


def read_heads(fill: Fill, shape: Shape, layers: slice, heads: slice, digests: list[str]) -> memoryview:
    """Layers and heads of a map file as such a file of their own, verified. `fill` reads from the whole one. Raises Corrupt."""
    size = shape[2] * shape[3] * 4
    chosen_layers, chosen_heads = range(shape[0])[layers], range(shape[1])[heads]
    count = len(chosen_heads)
    start = header((len(chosen_layers), count, *shape[2:]))
    file = memoryview(bytearray(len(start) + len(chosen_layers) * count * size))
    file[: len(start)] = start
    rooms = [file[len(start) + place * size :][:size] for place in range(len(chosen_layers) * count)]
    first = len(header(shape)) + chosen_heads.start * size
    fill(
        [
            (first + layer * shape[1] * size, file[len(start) + i * count * size :][: count * size])
            for i, layer in enumerate(chosen_layers)
        ]
    )
    wanted = [digests[layer * shape[1] + head] for layer in chosen_layers for head in chosen_heads]
    if any(hashlib.sha256(room).hexdigest() != digest for room, digest in zip(rooms, wanted, strict=True)):
        raise Corrupt
    return file


def values_of(file: memoryview) -> Array:
    """The map [L, H, Q, K] in a file that read_heads made."""
    length = struct.unpack_from("<Q", file)[0]
    shape = json.loads(bytes(file[8 : 8 + length]))["map"]["shape"]
    return np.frombuffer(file, np.float32, offset=8 + length).reshape(shape)
