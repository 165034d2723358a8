"""Files as streams of bytes, produced while they are sent, without a copy."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Chunks = Iterator[bytes]
# Bytes of a stream that are sent at once.
PIECE = 1024 * 1024


class ByteSink(io.RawIOBase):
    """A file for a writer that does not seek. `take` returns what was written since the last call."""

    def __init__(self) -> None:
        self._parts, self._position = list[bytes](), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._position += len(part)
        return len(part)

    def tell(self) -> int:
        return self._position

    def take(self) -> Chunks:
        """Return what was written since the last call."""
        parts, self._parts = self._parts, []
        return iter(parts)


def save(chunks: Chunks, path: str | Path) -> None:
    """Write a stream to a file. No file is created if the stream raises before its first byte."""
    first = next(chunks)
    with Path(path).open("wb") as file:
        file.write(first)
        file.writelines(chunks)


def zip_stream(write: Callable[[zipfile.ZipFile], Iterator[None]]) -> Chunks:
    """Yield a ZIP archive as a stream; `write` yields whenever what it has written can be sent."""
    sink = ByteSink()
    with zipfile.ZipFile(sink, "w") as archive:
        for _ in write(archive):
            yield from sink.take()
    yield from sink.take()
