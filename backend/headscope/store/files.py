"""Whole files such as data sets, of any size: kept piece by piece, each piece verified when it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .inputs import SHARE
from .map_file import Corrupt
from .results import ALL, Results, Stored

# A file is kept as a map of as many layers as it has pieces of so many bytes: one head each, four bytes a number.
PIECE = 4 * 1024 * 1024
NAME = "file"


class Files:
    """Files by an id of their content, each with a document about it. The least used make room for new ones."""

    def __init__(self, results: Results) -> None:
        self._results = results

    @classmethod
    def local(cls, home: Path, quota_bytes: int) -> Files:
        """Those of a home that one server has for itself."""
        return cls(Results.local(home / "files", quota_bytes // SHARE))

    @classmethod
    def shared(cls, where: str, redis_url: str, quota_bytes: int, staging: Path) -> Files:
        """Those of any number of servers and workers; see Results.shared."""
        return cls(Results.shared(f"{where.rstrip('/')}/files", redis_url, quota_bytes // SHARE, staging))

    @property
    def staging(self) -> Path:
        """As Results.staging."""
        return self._results.staging

    def put(self, id_: str, path: Path, document: dict[str, Any]) -> None:
        """Keep a file, and a document with its `bytes`. Raises StorageFull or StoreUnavailable."""
        size = path.stat().st_size
        width = min(PIECE, size + -size % 4)
        shape = (-(-size // width), 1, 1, width // 4)
        with path.open("rb") as file, self._results.writer(id_) as writer:
            writer.open({NAME: shape})
            for number, piece in enumerate(_pieces(file, width)):
                writer.write(NAME, number, 0, np.frombuffer(piece, np.float32).reshape(1, 1, -1))
            writer.finish({**document, "bytes": size, "shapes": {NAME: shape}}, {})

    def document(self, id_: str) -> dict[str, Any] | None:
        """What was kept about a file, and when as `made` (s since 1970); None if it is not here. Raises StoreUnavailable."""
        stored = self._find(id_)
        return None if stored is None else {**stored.document, "made": stored.manifest.made}

    def copy(self, id_: str, target: Path) -> bool:
        """Write a file to a path of this machine; False if it is not here any more, or damaged. Raises StoreUnavailable."""
        stored = self._find(id_)
        if stored is None:
            return False
        size, pieces = stored.document["bytes"], stored.document["shapes"][NAME][0]
        try:
            with target.open("wb") as file:
                for number in range(pieces):
                    file.write(stored.maps(NAME, slice(number, number + 1), ALL).data.cast("B"))
                file.truncate(size)
        except Corrupt:
            self._results.quarantine(id_)
            return False
        return True

    def ids(self) -> set[str]:
        """All files. Raises StoreUnavailable."""
        return self._results.ids()

    def delete(self, id_: str) -> bool:
        """As Results.delete."""
        return self._results.delete(id_)

    def tidy(self) -> None:
        """As Results.tidy."""
        self._results.tidy()

    def _find(self, id_: str) -> Stored | None:
        try:
            return self._results.get(id_)
        except Corrupt:
            self._results.quarantine(id_)
            return None


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pieces(file: BinaryIO, width: int) -> Iterator[bytes]:
    """The last one filled up with zeros."""
    while piece := file.read(width):
        yield piece.ljust(width, b"\0")
