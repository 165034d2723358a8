"""The interface of a storage backend, and what its two implementations share.

An entry appears whole or not at all: it is written to a staging folder, then published in one step. If two writers publish the same id, the first wins;
readers see one of the two, never a mixture.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from ..errors import StoreUnavailable
from .map_file import Piece

logger = logging.getLogger("headscope.store")

# Damaged entries kept for inspection.
QUARANTINED = 10
# Inode, modification time (ns) and size of each file.
Fingerprint = tuple[tuple[int, int, int], ...]


class BlobBackend(Protocol):
    """A place that keeps the files of entries by id. Every method raises StoreUnavailable if the place cannot be reached."""

    @property
    def remote(self) -> bool:
        """Whether every access is a network request."""

    @property
    def staging(self) -> Path:
        """A local folder for entries that are being written."""

    def fingerprint(self, id_: str, files: Sequence[str]) -> Fingerprint | None:
        """Return a value that changes whenever one of these files does, without reading them; None if one is missing or the backend is remote."""

    def manifest(self, id_: str) -> bytes | None:
        """Return the manifest of an entry, None if there is no entry. Raises Corrupt if something else is in its place."""

    def read(self, id_: str, folder: str, file: str) -> bytes:
        """Return a file of an entry; `folder` is the one its manifest names. Raises Corrupt if the file is missing."""

    def fill(self, id_: str, folder: str, file: str, pieces: list[Piece]) -> None:
        """Fill each piece with the bytes at its offset. Raises Corrupt if the file is too short."""

    def open(self, id_: str, file: str) -> BinaryIO | None:
        """Open a file of an entry, which stays readable if the entry is removed; None if the backend is remote. Raises Corrupt if the file is missing."""

    def publish(self, id_: str, folder: Path) -> bool:
        """Make the entry in a staging folder visible; return False if the id is taken. Raises StorageFull."""

    def remove(self, id_: str) -> bool:
        """Hide an entry at once, then remove its files; return whether it existed."""

    def quarantine(self, id_: str) -> bool:
        """Move an entry out of readers' way for inspection and keep only the newest ones; return whether it existed."""

    def tidy(self) -> set[str]:
        """Remove what unfinished writes left behind; return the ids of all entries."""


def unavailable(error: Exception | None = None) -> StoreUnavailable:
    """Return the error of a store that cannot be reached; log its cause."""
    if error is not None:
        logger.warning("cannot reach the store: %s: %s", type(error).__name__, error)
    return StoreUnavailable(
        "The store of results cannot be reached. Try again in a moment; the server's log has details."
    )


def quarantine_name(id_: str) -> str:
    """Return a new name for an entry in quarantine."""
    return f"{id_}.{time.time_ns():020d}"


def quarantine_time(name: str) -> str:
    """Return the part of such a name that sorts by time."""
    return name.rpartition(".")[2]
