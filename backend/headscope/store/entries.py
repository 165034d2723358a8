"""Entries on a backend, with an index and a quota: what the stores of results and of blobs have in common."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from ..database import Database
from ..errors import StorageFull, StoreUnavailable
from .backend import BlobBackend, unavailable
from .index import NO_RULES, Index, Rules
from .local import LocalBackend
from .manifest import NAME, Manifest, sealed
from .map_file import Corrupt, storing
from .remote import RemoteBackend
from .staging import Attempt, discard_ended, staging_name

NO_ROOM = (
    "The inputs do not fit beside those of analyses and studies that wait: together they may take an eighth of HEADSCOPE_QUOTA_BYTES. "
    "Try again once some have ended, or raise that limit."
)


class EntryStore(ABC):
    """Immutable entries by id, each sealed by a manifest. The least recently used are evicted to stay within the quota. Safe for threads and processes."""

    TOO_LARGE: ClassVar[str]
    # Whether entries survive a power cut; what can be computed again need not.
    DURABLE: ClassVar[bool] = False

    def __init__(self, backend: BlobBackend, index: Index, quota_bytes: int) -> None:
        self._backend, self._index, self._quota = backend, index, quota_bytes

    @classmethod
    def local(
        cls, folder: Path, quota_bytes: int, database: Database, name: str = "results", rules: Rules = NO_RULES
    ) -> Self:
        """Open the store in a folder that only one server uses. `name` is the store's name in the database."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(
            LocalBackend(folder, abandoned_seconds=0, durable=cls.DURABLE), Index(database, name, rules), quota_bytes
        )

    @classmethod
    def shared(cls, where: str, quota_bytes: int, database: Database, staging: Path, rules: Rules = NO_RULES) -> Self:
        """Open a store that any number of servers and workers share. `where` is a folder at the same path on every machine, or an fsspec address.

        `staging` is a local folder for uploads to such an address.
        """
        where = where.removeprefix("file://").rstrip("/")
        backend = RemoteBackend(where, staging) if "://" in where else LocalBackend(Path(where), durable=cls.DURABLE)
        return cls(backend, Index(database, where, rules), quota_bytes)

    @property
    def staging(self) -> Path:
        """A local folder for temporary files; abandoned ones are removed."""
        return self._backend.staging

    def has(self, id_: str) -> bool:
        """Return whether an entry exists, as `existing` does."""
        return bool(self.existing([id_]))

    def existing(self, ids: Collection[str]) -> set[str]:
        """Return which of these entries exist according to the index, without those that are withheld. They may be damaged."""
        self.synchronise(self._index.pending())
        found, complete = self._index.find(ids)
        if not complete:
            found |= {id_ for id_ in ids if id_ not in found and self.exists(id_)}
        return found - self._index.withheld(found)

    def exists(self, id_: str) -> bool:
        """Return whether an entry exists on the backend, whatever the index says. Raises StoreUnavailable."""
        with suppress(Corrupt):
            return self._backend.manifest(id_) is not None
        return False

    def delete(self, id_: str) -> bool:
        """Delete an entry; return whether it existed."""
        with suppress(Corrupt):
            self._backend.manifest(id_)  # raises StoreUnavailable before anything is deleted
        known = self._index.remove(id_)  # first: an indexed entry that the backend lacks counts as damaged
        removed = self._backend.remove(id_)
        with suppress(Corrupt):
            self._unindex_missing(id_)  # another process may have indexed it in between
        return known or removed

    def quarantine(self, id_: str) -> bool:
        """Move a damaged entry out of the way, for inspection; only the newest ten are kept. Return False if it is missing or not damaged."""
        try:
            self.verify(id_)
        except Corrupt:
            moved = self._backend.quarantine(id_)
            return self._index.remove(id_) or moved
        return False

    @abstractmethod
    def verify(self, id_: str) -> None:
        """Read everything of an entry, if it exists. Raises Corrupt."""

    def usage(self) -> tuple[int, int]:
        """Return the number of entries and their bytes."""
        return self._index.usage()

    def ids(self) -> set[str]:
        """Return all indexed entries. Raises StoreUnavailable if the index is not available."""
        known = self._index.ids()
        if known is None:
            raise unavailable()
        return known

    def tidy(self) -> None:
        """Remove what killed writers left behind, and synchronise index and backend.

        A local store does this once, at start-up, before anything is written; in a shared store one process at a time does, however often it is called.
        """
        self._index.write_uses()
        known = self._index.ids() if self._index.acquire_turn() else None
        if known is None:
            return
        try:
            found = self._backend.tidy()
            for id_ in found - known:
                self._index_entry(id_, used_when_made=True)
            for id_ in known - found:
                self._unindex_missing(id_)
        except StoreUnavailable:
            return  # logged where it was raised; the next turn retries
        self._index.mark_complete()

    def discard_ended(self, running: Callable[[Collection[str]], Mapping[str, int]]) -> None:
        """Remove what ended attempts left half written on this machine; see staging.discard_ended."""
        with suppress(OSError):  # such as a network folder that does not respond; the next call retries
            discard_ended(self.staging, running)

    def _read_manifest(self, id_: str) -> bytes | None:
        """Return the manifest of an entry, None if it does not exist. Raises Corrupt if it is indexed but the backend lacks it."""
        data = self._backend.manifest(id_)
        if data is None and self._index.find([id_])[0]:
            data = self._backend.manifest(id_)  # it may have been published in between
            if data is None:
                raise Corrupt
        return data

    @contextmanager
    def _staged(self, attempt: Attempt | None = None) -> Iterator[Path]:
        """Create a staging folder and remove it at the end, unless it was published."""
        folder = self.staging / staging_name(attempt)
        with storing():
            folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _publish(self, id_: str, folder: Path, document: dict[str, Any], digests: dict[str, Any]) -> int:
        """Seal a staging folder and publish it; return the bytes of the entry. Raises StorageFull or StoreUnavailable."""
        with storing():
            size = sum(path.stat().st_size for path in folder.iterdir())
            manifest = sealed(id_, folder.name, time.time(), size, document, digests)
            (folder / NAME).write_bytes(manifest)
        size += len(manifest)
        if size > self._quota:
            raise StorageFull(self.TOO_LARGE)
        while not self._backend.publish(id_, folder):
            if self._index_entry(id_):  # another process was first; the same id means the same content
                return size
        victims = self._index.add(id_, size, self._quota)
        self._evict(victims)
        if id_ in victims:
            raise StorageFull(NO_ROOM)
        self.synchronise(self._index.pending())
        return size

    def synchronise(self, ids: Iterable[str]) -> None:
        """Index, or remove from the index, entries that were written or deleted while it was not available."""
        with suppress(StoreUnavailable):  # tidy finds what is left
            for id_ in ids:
                if self._unindex_missing(id_):
                    self._index_entry(id_)
                if id_ in self._index.pending():
                    return

    def _index_entry(self, id_: str, *, used_when_made: bool = False) -> bool:
        """Index an entry of the backend, or quarantine it if its manifest is damaged; return whether it exists."""
        try:
            data = self._backend.manifest(id_)
            if data is not None:
                manifest = Manifest(id_, data)
                used = manifest.made if used_when_made else None
                self._evict(self._index.add(id_, manifest.size, self._quota, used))
                return self._unindex_missing(id_)
        except Corrupt:
            self._backend.quarantine(id_)
        return False

    def _unindex_missing(self, id_: str) -> bool:
        """Remove an entry from the index if the backend lacks it: one process may index it while another removes it. Return whether it exists."""
        exists = self._backend.manifest(id_) is not None
        if not exists:
            self._index.remove(id_)
        return exists

    def _evict(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            with suppress(StoreUnavailable, Corrupt):  # tidy finds what is left
                self._backend.remove(id_)
                self._unindex_missing(id_)
